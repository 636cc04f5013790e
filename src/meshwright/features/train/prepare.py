"""`prepare`: load all that a recipe names, without any device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax

from meshwright.features.train.data.batches import Batches
from meshwright.features.train.data.examples import open_source, split_held_out
from meshwright.features.train.recipes.model import load_model
from meshwright.features.train.recipes.optimizer import make_optimizer, make_schedule
from meshwright.features.train.recipes.partitioning import tactics_for
from meshwright.features.train.recipes.recipe import Recipe
from meshwright.features.train.step_functions import StepFunctions, make_functions
from meshwright.partitioner.tactics import Tactic


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """The model functions, batches and tactics that a recipe names, loaded on the host.

    tactics: None if a search has to find them.
    held_out: batches for evaluation.
    """

    recipe: Recipe
    functions: StepFunctions
    tactics: tuple[Tactic, ...] | None
    batches: Batches
    held_out: Batches

    @property
    def shapes(self) -> tuple[Any, Any]:
        """The types of the state and of a batch."""
        state = jax.eval_shape(self.functions.init, jax.random.key(0))
        return state, self.batches.shapes()


def prepare(recipe: Recipe) -> Prepared:
    """Load the model, the data and the optimizer that a recipe names."""
    model = load_model(recipe.model)
    schedule = make_schedule(recipe.schedule)
    optimizer = make_optimizer(recipe.optimizer, schedule)
    functions = make_functions(model, optimizer, schedule, recipe.run.seed)
    data = recipe.data
    kept, held_out = split_held_out(open_source(data), data.held_out)
    return Prepared(
        recipe,
        functions,
        tactics_for(recipe.partition, model.schedules),
        Batches(kept, data.batch, data.seed),
        Batches(held_out, data.batch, data.seed),
    )
