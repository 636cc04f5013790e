"""Targets, the programs that commands work on: `path.py[:name]` or `pkg.module:name`.

A target is a function without parameters that returns (fn, args): the function to
partition, and its arguments. A module may also define `targets`, a dict of further
targets by name, `inference`, a dict of forward passes, and `schedules`, a dict of lists of
tactics.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import Any

from meshwright.app.step.load_module import describe_error, load_module, user_code
from meshwright.errors import MeshwrightError, TargetError, did_you_mean
from meshwright.partitioner.tactics import Tactic
from meshwright.run.local.devices import find_devices


@dataclass(frozen=True, eq=False)
class Target:
    """A target that was found in a module: a function to partition, and its arguments.

    make: the user's function that returns both, called when they are first needed, since it
    may take long.
    """

    name: str
    make: Callable[[], Any]
    schedules: Mapping[str, Sequence[Tactic]]

    @cached_property
    def made(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """The function to partition and its arguments, as the user's target returned them.

        Raises `TargetError` if it returned something else.
        """
        return _call(self.name, self.make)

    @property
    def fn(self) -> Callable[..., Any]:
        """The function to partition."""
        return self.made[0]

    @property
    def args(self) -> tuple[Any, ...]:
        """The arguments of the function to partition."""
        return self.made[1]


def find_target(text: str, is_inference: bool = False) -> Target:
    """Import the module that `text` names, and find its target.

    is_inference: prefer the module's `inference`, a dict of forward passes by name.

    Raises `TargetError`, which lists the module's targets, if there is none of that name.
    """
    place, name = _split(text)
    module = load_module(place)
    targets = _candidates(module) | _named_table(module, place, "targets")
    if is_inference:
        targets |= _named_table(module, place, "inference")
    name = name or _only(targets, place)
    make = targets.get(name) or getattr(module, name, None)
    if make is None:
        raise TargetError(f"{place} has no {name!r}{_offer(targets, name)}")
    if not callable(make):
        raise TargetError(
            f"{place}:{name} is {_brief(make)}, not a function; {_WANTED}"
        )
    return Target(f"{place}:{name}", make, _named_table(module, place, "schedules"))


def _split(text: str) -> tuple[str, str]:
    """Split the name of a target at its last colon: (path or module, name of the function).

    The name is "" if it was left out.
    """
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
    """The public functions of a module that can be targets, by name.

    They are defined in the module itself, and can be called without arguments.
    """
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


def _only(targets: Mapping[str, object], place: str) -> str:
    """The name of the target to use if the command named only a module.

    This is "target" if the module has it, or the name of its only target. Otherwise a
    `TargetError` lists its targets.
    """
    if "target" in targets:
        return "target"
    if len(targets) == 1:
        return next(iter(targets))
    if not targets:
        raise TargetError(f"{place} has no target; {_WANTED}")
    names = ", ".join(f"{place}:{name}" for name in targets)
    raise TargetError(f"{place} has several targets; choose one: {names}")


def _offer(targets: Mapping[str, object], name: str) -> str:
    hint = did_you_mean(name, targets)
    return f"{hint}; it has {', '.join(targets)}" if targets else "; it has no targets"


_WANTED = (
    "wanted a function without parameters that returns (fn, args), such as "
    "`return train_step, (state, batch)`"
)


def _call(
    name: str, make: Callable[[], Any]
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Call a target, check the types of what it returns, and return (fn, args)."""
    _require_bind(make, (), f"{name} is called without arguments")
    try:
        with user_code():
            result = make()
    except MeshwrightError:
        raise
    except (Exception, SystemExit) as error:
        find_devices()  # a platform that cannot start is a clearer reason
        raise TargetError(f"{name}() failed: {describe_error(error)}") from error
    if not isinstance(result, tuple | list) or len(result) != 2:
        raise TargetError(f"{name}() returned {_brief(result)}; {_WANTED}")
    fn, args = result
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
    """The dict `schedules`, `targets` or `inference` of a module, its types checked.

    `schedules` is {name: [tactics]}, the others are {name: function}. It is empty if the
    module defines none.
    """
    entries = getattr(module, table, {})
    if not isinstance(entries, Mapping):
        wanted = "[tactics]" if table == "schedules" else "function"
        raise TargetError(
            f"{place}: {table} is {_brief(entries)}; wanted {{name: {wanted}}}"
        )
    return {str(name): entry for name, entry in entries.items()}
