"""Find the arguments of a step to which an initial state belongs.

A state belongs to arguments with its tree structure and shapes.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax

from meshwright.errors import PlanError
from meshwright.program.capture import Captured
from meshwright.program.capture.capture import path_component
from meshwright.program.ir import show_type


@dataclass(frozen=True, slots=True, eq=False)
class Argument:
    """One argument of a step: its name, and pytrees of its types and shardings."""

    name: str
    types: Any
    shardings: Any


def list_arguments(
    captured: Captured, names: Sequence[str], shardings: Sequence[Any]
) -> tuple[Argument, ...]:
    """The arguments of a captured step, with their types and shardings.

    names: names of the positional arguments. shardings: shardings of all leaves.
    """
    (args, kwargs), (cut_args, cut_kwargs) = (
        jax.tree_util.tree_unflatten(captured.in_tree, leaves)
        for leaves in (captured.avals, shardings)
    )
    keywords = (Argument(name, kwargs[name], cut_kwargs[name]) for name in kwargs)
    return (*map(Argument, names, args, cut_args), *keywords)


def find_state(
    arguments: Sequence[Argument], state: Any, names: Sequence[str] | None
) -> list[Argument]:
    """The arguments to which a state belongs: one, or one per element of a tuple.

    state: the pytree of `ShapeDtypeStruct`s that the initial function returns.
    names: names of the arguments; by default the arguments with the same structure and
        shapes, which must be consecutive for a tuple.
    Raises `PlanError` if no arguments fit, or if there are several possibilities.
    """
    if names is not None:
        wanted = [a for name in names for a in arguments if a.name == name]
        parts = (state,) if len(wanted) == 1 else tuple(state)
        for argument, part in zip(wanted, parts, strict=True):
            reason = _difference(argument, part)
            if reason:
                raise PlanError(f"init_fn does not return {argument.name}: {reason}")
        return wanted
    groups = [(state,), *([tuple(state)] if isinstance(state, tuple) else [])]
    fitting = [run for parts in groups for run in _runs(arguments, parts)]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        runs = [" and ".join(a.name for a in run) for run in fitting]
        raise PlanError(
            f"init_fn returns what fits several arguments of the step: {', '.join(runs)}; "
            "say which with argnum="
        )
    raise PlanError(_nothing_fits(arguments, state))


def _runs(
    arguments: Sequence[Argument], parts: Sequence[Any]
) -> Iterator[list[Argument]]:
    """Every list of consecutive arguments that match the parts of a state one by one."""
    for first in range(len(arguments) - len(parts) + 1):
        run = list(arguments[first : first + len(parts)])
        pairs = zip(run, parts, strict=True)
        if parts and not any(_difference(a, part) for a, part in pairs):
            yield run


def _difference(argument: Argument, part: Any) -> str:
    """Text on the first difference between an argument and a part of the state.

    "" if they are equal in structure and shapes.
    """
    name, wanted, got = argument.name, _by_path(argument.types), _by_path(part)
    for path in wanted:
        if path not in got:
            return f"{name}{path} is missing"
    for path in got:
        if path not in wanted:
            return f"{path.lstrip('.')} is not part of {name}"
    ours, theirs = map(jax.tree_util.tree_structure, (part, argument.types))
    if ours != theirs:
        return f"it returns {ours}, and {name} is {theirs}"
    for path, leaf in got.items():
        has, wants = (show_type(x.shape, str(x.dtype)) for x in (leaf, wanted[path]))
        if has != wants:
            return f"{name}{path} is {has}, and the step takes {wants}"
    return ""


def _by_path(tree: Any) -> Mapping[str, Any]:
    """The leaves of a tree, keyed by paths such as `.blocks.0.up`.

    If the tree is a single leaf, its key is "".
    """
    return {
        "".join(f".{path_component(key)}" for key in path): leaf
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    }


def _nothing_fits(arguments: Sequence[Argument], state: Any) -> str:
    """The error message for a state that fits no argument.

    It has the difference from the argument that shares the most paths with it.
    """
    parts = [state, *(state if isinstance(state, tuple) else ())]
    names = ", ".join(argument.name for argument in arguments)
    nearest = max(
        ((argument, part) for argument in arguments for part in parts),
        key=lambda pair: len(_by_path(pair[0].types).keys() & _by_path(pair[1]).keys()),
        default=None,
    )
    reason = "" if nearest is None else f": {_difference(*nearest)}"
    return f"init_fn returns no argument of the step ({names}){reason}"
