"""`prepare`: load all that a recipe names, without any device."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from meshwright.errors import RecipeError
from meshwright.features.train.data.batches import Batches
from meshwright.features.train.data.examples import (
    Mixture,
    open_mixture,
    split_held_out,
)
from meshwright.features.train.data.position import identity_of
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
    held_out: batches for evaluation. identity: that of the data, as in a position.
    """

    recipe: Recipe
    functions: StepFunctions
    tactics: tuple[Tactic, ...] | None
    batches: Batches
    held_out: Batches
    identity: Mapping[str, Any]

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
    functions = make_functions(model, optimizer, schedule, recipe.run)
    data = recipe.data
    mixture = open_mixture(data)
    _require_alike(mixture)
    kept, held_out = split_held_out(mixture, data.held_out)
    _require_batch(kept, data.batch)
    batches = Batches(kept, data.batch, data.seed)
    return Prepared(
        recipe,
        functions,
        tactics_for(recipe.partition, model.schedules),
        batches,
        Batches(held_out, data.batch, data.seed),
        identity_of(mixture, batches),
    )


def _require_batch(mixture: Mixture, batch: int) -> None:
    """Raise `RecipeError` if a source repeats examples within a batch."""
    for name, source in mixture.parts.items():
        needed = math.ceil(batch * mixture.share(name))
        if len(source) < needed:
            table = f"data.mixture.{name}" if name else "data"
            raise RecipeError(
                f"[{table}] has {len(source)} examples to train on, and a batch takes "
                f"{needed}, so that examples would be repeated in it; give more data, or "
                f"lower data.batch = {batch}"
            )


def _require_alike(mixture: Mixture) -> None:
    """Raise `RecipeError` if examples of two sources differ in structure or types."""
    first, *others = mixture.parts
    wanted = _example_type(mixture, first)
    for name in others:
        found = _example_type(mixture, name)
        if found != wanted:
            raise RecipeError(
                f"examples of data.mixture.{name} are {found}, those of "
                f"data.mixture.{first} are {wanted}; wanted one type"
            )


def _example_type(mixture: Mixture, name: str) -> Any:
    return jax.tree.map(
        lambda leaf: f"{np.asarray(leaf).dtype}{list(np.shape(leaf))}",
        mixture.parts[name][0],
    )
