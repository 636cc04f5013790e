"""Loading of the model that a recipe names, from functions of the user's module."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from meshwright.app.step.load_module import describe_error, load_module
from meshwright.errors import MeshwrightError, RecipeError, did_you_mean
from meshwright.features.train.recipes.recipe import ModelPart
from meshwright.partitioner.tactics import Tactic

_WANTED = "wanted a function that returns (init, loss), such as `return init, loss`"


@dataclass(frozen=True, slots=True, eq=False)
class TrainModel:
    """The model to train.

    init: a function from a PRNG key to the parameters.
    loss: a function of (parameters, batch), or of (parameters, batch, key) if `takes_key`.
    schedules: lists of tactics in the user's module that a recipe can name.
    """

    init: Callable[..., Any]
    loss: Callable[..., Any]
    takes_key: bool
    schedules: Mapping[str, Sequence[Tactic]]


def load_model(part: ModelPart) -> TrainModel:
    """The model that a recipe names.

    Raises `RecipeError` if the named function does not return `(init, loss)`.
    """
    module, made = call_named(part.program, part.options, "model", _WANTED)
    if (
        not isinstance(made, tuple | list)
        or len(made) != 2
        or not all(map(callable, made))
    ):
        raise RecipeError(f"{part.program} returned {made!r:.60}; {_WANTED}")
    init, loss = made
    schedules = getattr(module, "schedules", {})
    return TrainModel(init, loss, _takes_key(loss, part.program), schedules)


def _takes_key(loss: Callable[..., Any], program: str) -> bool:
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    count = sum(
        p.kind in kinds and p.default is p.empty
        for p in inspect.signature(loss).parameters.values()
    )
    if count not in (2, 3):
        raise RecipeError(
            f"the loss of {program} takes {count} arguments; wanted (params, batch) or "
            "(params, batch, key)"
        )
    return count == 3


def call_named(
    target: str, options: Mapping[str, Any], table: str, wanted: str
) -> tuple[Any, Any]:
    """Import a user's module, call a function in it, and return module and result.

    target: `path.py:name` or `pkg.module:name`. options: keyword arguments of the function.
    table: the recipe's table that names the target, for errors.
    wanted: text on what the function should return, for errors.
    """
    place, colon, name = target.rpartition(":")
    if not colon or not place or not name:
        raise RecipeError(
            f"[{table}] names {target!r}; wanted path.py:name or pkg.module:name"
        )
    module = load_module(place)
    make = getattr(module, name, None)
    if not callable(make):
        near = did_you_mean(name, [n for n, f in vars(module).items() if callable(f)])
        raise RecipeError(f"{place} has no function {name!r}{near}; {wanted}")
    require_options(make, options, f"[{table}] options of {target}")
    try:
        return module, make(**options)
    except MeshwrightError:
        raise
    except Exception as error:
        raise RecipeError(f"{target} failed: {describe_error(error)}") from error


def require_options(
    fn: Callable[..., Any], options: Mapping[str, Any], what: str, *given: str
) -> None:
    """Raise `RecipeError` if a function has no such option, or needs one that is missing.

    options: the keyword arguments that a recipe gives. what: text for the error.
    given: names of arguments that the caller passes in addition.
    """
    parameters = inspect.signature(fn).parameters
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    named = [n for n, p in parameters.items() if p.kind is not p.VAR_KEYWORD]
    for name in options:
        if name in given or (name not in named and not takes_any):
            near = (
                did_you_mean(name, named) or f"; there are {', '.join(named) or 'none'}"
            )
            raise RecipeError(f"{what}: {name!r} is none of them{near}")
    missing = [
        name
        for name, p in parameters.items()
        if p.default is p.empty
        and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
        and name not in options
        and name not in given
    ]
    if missing:
        raise RecipeError(f"{what} lack {', '.join(missing)}")
