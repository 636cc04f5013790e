"""Make the optimizer and the learning rate schedule from optax that a recipe names."""

from collections.abc import Callable
from typing import Any

from meshwright.errors import RecipeError, did_you_mean, import_extra
from meshwright.features.train.recipes.model import require_options
from meshwright.features.train.recipes.recipe import OptimizerPart, SchedulePart


def make_schedule(part: SchedulePart) -> Callable[..., Any]:
    """The learning rate, as a function of the number of steps done."""
    make = _named(part.name, "schedule")
    require_options(make, part.options, f"[schedule] options of {part.name}")
    try:
        made = make(**part.options)
        made(0)
    except Exception as error:
        raise RecipeError(f"[schedule] {part.name}: {error}") from error
    return made


def make_optimizer(part: OptimizerPart, schedule: Callable[..., Any]) -> Any:
    """The optax optimizer that a recipe names, with this learning rate schedule."""
    make = _named(part.name, "optimizer")
    what = f"[optimizer] options of {part.name}"
    require_options(make, part.options, what, "learning_rate")
    try:
        made = make(learning_rate=schedule, **part.options)
    except Exception as error:
        raise RecipeError(f"[optimizer] {part.name}: {error}") from error
    if part.clip_norm:
        optax = import_optax()
        return optax.chain(optax.clip_by_global_norm(part.clip_norm), made)
    return made


def _named(name: str, table: str) -> Callable[..., Any]:
    optax = import_optax()
    known = [each for each in vars(optax) if callable(getattr(optax, each))]
    if name not in known:
        raise RecipeError(f"[{table}] optax has no {name!r}{did_you_mean(name, known)}")
    return getattr(optax, name)


def import_optax() -> Any:
    """The module `optax`; a `RecipeError` that names the pip extra if it is missing."""
    return import_extra("optax", "training needs optax", "train", RecipeError)
