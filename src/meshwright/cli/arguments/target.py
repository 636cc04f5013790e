"""Targets: `path.py[:name]` or `pkg.module:name`, functions that return (fn, args).

A module may also define `targets`, a dict of further such functions, and `schedules`, a
dict of lists of tactics.
"""

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import Any

from meshwright.app.load_module import describe_error, load_module
from meshwright.errors import MeshwrightError, TargetError, did_you_mean
from meshwright.partitioner.tactics import Tactic
from meshwright.run.local import find_devices


@dataclass(frozen=True, eq=False)
class Target:
    """A function and its arguments, which are made when they are first used.

    make: the function that returns both, which may take long. others: the other targets of
    the module, by name.
    """

    name: str
    make: Callable[[], Any]
    schedules: Mapping[str, Sequence[Tactic]]
    others: Mapping[str, Callable[[], Any]]

    @cached_property
    def made(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """The function and its arguments; `TargetError` if something else was returned."""
        return _call(self.name, self.make)

    @property
    def fn(self) -> Callable[..., Any]:
        """The function that the target returns."""
        return self.made[0]

    @property
    def args(self) -> tuple[Any, ...]:
        """The arguments that the target returns for the function."""
        return self.made[1]


def find_target(text: str) -> Target:
    """The target that `text` names; a `TargetError` lists the targets that there are."""
    place, name = _split(text)
    module = load_module(place)
    found = _candidates(module) | _named_table(module, place, "targets")
    name = name or _only(found, place)
    make = found.get(name) or getattr(module, name, None)
    if make is None:
        raise TargetError(f"{place} has no {name!r}{_offer(found, name)}")
    if not callable(make):
        raise TargetError(
            f"{place}:{name} is {_brief(make)}, not a function; {_WANTED}"
        )
    others = {n: f for n, f in found.items() if n != name}
    schedules = _named_table(module, place, "schedules")
    return Target(f"{place}:{name}", make, schedules, others)


def _split(text: str) -> tuple[str, str]:
    """(path or module, name or "")."""
    place, colon, name = text.rpartition(":")
    if not colon:
        place, name = text, ""
    if not place or (not place.endswith(".py") and not name):
        raise TargetError(
            f"target {text!r} is neither path.py[:name] nor pkg.module:name"
        )
    return place, name


# -- names -----------------------------------------------------------------------------


def _candidates(module: ModuleType) -> dict[str, Callable[[], Any]]:
    """Public functions that the module defines and that need no argument, in order."""
    return {
        name: fn
        for name, fn in vars(module).items()
        if inspect.isfunction(fn)
        and fn.__module__ == module.__name__
        and not name.startswith("_")
        and all(
            p.default is not p.empty for p in inspect.signature(fn).parameters.values()
        )
    }


def _only(found: Mapping[str, object], place: str) -> str:
    """The name of a module's target where the command names none.

    It is "target", or that of the only target; `TargetError` lists them otherwise.
    """
    if "target" in found:
        return "target"
    if len(found) == 1:
        return next(iter(found))
    if not found:
        raise TargetError(f"{place} has no target; {_WANTED}")
    names = ", ".join(f"{place}:{name}" for name in found)
    raise TargetError(f"{place} has several targets; choose one: {names}")


def _offer(found: Mapping[str, object], name: str) -> str:
    hint = did_you_mean(name, found)
    return f"{hint}; it has {', '.join(found)}" if found else "; it has no targets"


_WANTED = (
    "wanted a function without parameters that returns (fn, args), such as "
    "`return train_step, (state, batch)`"
)


def _call(
    name: str, make: Callable[[], Any]
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The function and arguments that a target returns, after a check of their types."""
    _require_bind(make, (), f"{name} is called without arguments")
    try:
        with redirect_stdout(sys.stderr):  # what is printed is no result of the command
            made = make()
    except MeshwrightError:
        raise
    except (Exception, SystemExit) as error:
        find_devices()  # a platform that cannot start is a clearer reason
        raise TargetError(f"{name}() failed: {describe_error(error)}") from error
    if not isinstance(made, tuple | list) or len(made) != 2:
        raise TargetError(f"{name}() returned {_brief(made)}; {_WANTED}")
    fn, args = made
    if not callable(fn):
        raise TargetError(f"{name}() returned {_brief(fn)} as fn; wanted a function")
    if not isinstance(args, tuple | list):
        raise TargetError(
            f"{name}() returned {_brief(args)} as args; wanted a tuple of arguments"
        )
    _require_bind(fn, args, f"{name}() returned {len(args)} arguments for its function")
    return fn, tuple(args)


def _require_bind(fn: Callable[..., Any], args: Sequence[Any], what: str) -> None:
    """Raise `TargetError` if a function cannot be called with these arguments."""
    try:
        wanted = inspect.signature(fn)
    except (TypeError, ValueError):  # the signature is unknown
        return
    try:
        wanted.bind(*args)
    except TypeError as error:
        raise TargetError(f"{what}, {_label(fn)}{wanted}: {error}; {_WANTED}") from None


def _label(fn: Callable[..., Any]) -> str:
    return getattr(fn, "__name__", type(fn).__name__)


def _brief(value: object) -> str:
    text = repr(value)
    short = text if len(text) <= 60 else f"{text[:57]}..."
    return f"{short} ({type(value).__name__})"


def _named_table(module: ModuleType, place: str, table: str) -> dict[str, Any]:
    """A module's dict `schedules`, {name: [tactics]}, or `targets`, {name: function}."""
    found = getattr(module, table, {})
    if not isinstance(found, Mapping):
        wanted = {"schedules": "[tactics]", "targets": "function"}[table]
        raise TargetError(
            f"{place}: {table} is {_brief(found)}; wanted {{name: {wanted}}}"
        )
    return {str(name): entry for name, entry in found.items()}
