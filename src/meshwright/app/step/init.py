"""The arguments of a step that an initial state is for, and its shardings."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax

from meshwright.errors import PlanError
from meshwright.program.capture import Captured
from meshwright.program.ir import show_type


@dataclass(frozen=True, slots=True, eq=False)
class Argument:
    """One argument of a step: its name, its structure, and its span of the leaves."""

    name: str
    tree: Any
    start: int

    @property
    def span(self) -> range:
        """Positions of the argument's leaves among the leaves of all arguments."""
        return range(self.start, self.start + self.tree.num_leaves)


def list_arguments(captured: Captured, names: Sequence[str]) -> tuple[Argument, ...]:
    """The arguments of a captured step; `names` are those of the positional ones."""
    args, kwargs = captured.in_tree.children()
    keywords = kwargs.node_data()[1] if kwargs.node_data() else ()
    found: list[Argument] = []
    start = 0
    trees = (*args.children(), *kwargs.children())
    for name, tree in zip((*names, *keywords), trees, strict=True):
        found.append(Argument(str(name), tree, start))
        start += tree.num_leaves
    return tuple(found)


def find_state(
    captured: Captured,
    arguments: Sequence[Argument],
    state: Any,
    chosen: Sequence[str] | None,
) -> list[Argument]:
    """The arguments that `state` is for: one, or one for each element of a tuple.

    state: the pytree of `ShapeDtypeStruct`s that the initial function returns.
    chosen: names of the arguments; by default those of the same structure and shapes,
        which for a tuple are consecutive.
    Raises `PlanError` if there are none, or several.
    """
    if chosen is not None:
        wanted = [a for name in chosen for a in arguments if a.name == name]
        parts = (state,) if len(wanted) == 1 else tuple(state)
        for argument, part in zip(wanted, parts, strict=True):
            reason = _difference(captured, argument, part)
            if reason:
                raise PlanError(f"init_fn does not return {argument.name}: {reason}")
        return wanted
    groups = [(state,), *([tuple(state)] if isinstance(state, tuple) else [])]
    found = [run for parts in groups for run in _runs(captured, arguments, parts)]
    if len(found) == 1:
        return found[0]
    if found:
        names = [" and ".join(a.name for a in run) for run in found]
        raise PlanError(
            f"init_fn returns what fits several arguments of the step: {', '.join(names)}; "
            "say which with argnum="
        )
    raise PlanError(_nothing_fits(captured, arguments, state))


def _runs(
    captured: Captured, arguments: Sequence[Argument], parts: Sequence[Any]
) -> Iterator[list[Argument]]:
    """Consecutive arguments that fit the parts of a state one by one; each such run."""
    for first in range(len(arguments) - len(parts) + 1):
        run = list(arguments[first : first + len(parts)])
        pairs = zip(run, parts, strict=True)
        if parts and not any(_difference(captured, a, part) for a, part in pairs):
            yield run


def _difference(captured: Captured, argument: Argument, part: Any) -> str:
    """The first difference between an argument and a part of the state; "" if none."""
    with_paths, tree = jax.tree_util.tree_flatten_with_path(part)
    given = {_path(path): leaf for path, leaf in with_paths}
    first = len(argument.name) + 1
    paths = [captured.paths[i][first:] for i in argument.span]
    if tree != argument.tree:
        missing = [path for path in paths if path not in given]
        extra = [path for path in given if path not in paths]
        if missing:
            return f"{argument.name}.{missing[0]} is missing"
        if extra:
            return f"{extra[0]} is not part of {argument.name}"
        return f"it returns {tree}, and {argument.name} is {argument.tree}"
    for i, leaf in zip(argument.span, given.values(), strict=True):
        aval = captured.avals[i]
        if (aval.shape, aval.dtype) != (leaf.shape, leaf.dtype):
            has, wants = (show_type(x.shape, str(x.dtype)) for x in (leaf, aval))
            return f"{captured.paths[i]} is {has}, and the step takes {wants}"
    return ""


def _path(path: Sequence[Any]) -> str:
    return jax.tree_util.keystr(tuple(path), simple=True, separator=".")


def _nothing_fits(captured: Captured, arguments: Sequence[Argument], state: Any) -> str:
    """The message for a state that fits no argument: the difference from the nearest."""
    parts = [state, *(state if isinstance(state, tuple) else ())]

    def num_common(pair: tuple[Argument, Any]) -> int:
        argument, part = pair
        with_paths = jax.tree_util.tree_leaves_with_path(part)
        paths = {_path(path) for path, _ in with_paths}
        first = len(argument.name) + 1
        return sum(captured.paths[i][first:] in paths for i in argument.span)

    names = ", ".join(argument.name for argument in arguments)
    pairs = [(argument, part) for argument in arguments for part in parts]
    nearest = max(pairs, key=num_common, default=None)
    reason = "" if nearest is None else f": {_difference(captured, *nearest)}"
    return f"init_fn returns no argument of the step ({names}){reason}"
