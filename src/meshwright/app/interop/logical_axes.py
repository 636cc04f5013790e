"""Tactics from logical axis rules (Flax, MaxText), and rules from a plan's shardings.

A logical axis is a name of an array's dim, such as "embed"; a rule maps it to mesh axes.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any

import jax
from jax.sharding import PartitionSpec

from meshwright.app.interop.logical_rules import (
    Axes,
    Names,
    Rules,
    axes_of_names,
    read_rules,
    require_known,
)
from meshwright.app.record.parts import Leaf
from meshwright.errors import PlanError, TacticError
from meshwright.machine import Mesh
from meshwright.partitioner.propagate.sub_axes import SUB_AXIS
from meshwright.partitioner.structure.workspace import matches
from meshwright.partitioner.tactics import REPLICATED, Tactic, replicate, shard
from meshwright.partitioner.tactics.primitives import Dim
from meshwright.program.capture.capture import path_component
from meshwright.program.capture.mesh import as_mesh


@dataclass(frozen=True, slots=True)
class NamedArray:
    """An array whose dims have logical names; path: a pattern that matches its path."""

    path: str
    names: Names


def from_logical_axes(
    rules: Sequence[Any] | None,
    logical_axes: Any,
    path: str = "",
    mesh: Mesh | jax.sharding.Mesh | Mapping[str, int] | None = None,
) -> list[Tactic]:
    """Tactics that shard arguments by logical axis rules of Flax or MaxText.

    rules: pairs of a logical name and a mesh axis, several axes or None, in order of
        precedence, as for `flax.linen.logical_axis_rules` or as `logical_axis_rules` of
        MaxText's configuration. None means the rules of the `nn.logical_axis_rules` context
        around this call.
    logical_axes: a tree with the names of the dims of each array: `LogicallyPartitioned` or
        `Partitioned` boxes of Flax, variables of nnx with sharding metadata, or
        `PartitionSpec`s and tuples of names, as from `nn.get_partition_spec`. Keys with a
        "." are patterns of paths. Arrays without names get no tactic.
    path: the argument, or part of an argument, to which the tree belongs, such as
        "state.params"; without it, the tree is a mapping from the names of arguments.
    mesh: the mesh to be used. Axes of rules that it does not have, or has with size 1, are
        ignored.
    If an axis splits some of the named arrays, it is kept from splitting the others. With
    `mesh`, the other axes of the mesh are kept from splitting named arrays, too.
    Put a tactic that splits the batch before these tactics, unless the batch is in the
    tree: of two decisions about one op the first counts.
    Raises `TacticError`, naming the array, for a logical name without a rule.
    """
    read = read_rules(_context_rules() if rules is None else rules)
    sizes = None if mesh is None else as_mesh(mesh).shape
    specs: dict[str, tuple[Axes, ...]] = {}
    for array in named_arrays(logical_axes, path):
        require_known(array.path, array.names, read)
        specs[array.path] = tuple(
            tuple(a for a in axes if sizes is None or sizes.get(a, 1) > 1)
            for axes in axes_of_names(array.names, read)
        )
    if not specs:
        raise TacticError("no array in the tree of logical axes has names for its dims")
    others = [axis for axis, size in (sizes or {}).items() if size > 1]
    return list(_tactics(specs, others))


def _context_rules() -> Sequence[Any]:
    """The rules of the `flax.linen.logical_axis_rules` context around the call."""
    spmd = sys.modules.get("flax.core.spmd")
    rules = spmd.get_logical_axis_rules() if spmd is not None else ()
    if not rules:
        raise TacticError(
            "there are no rules: give a list of them, or call this inside of `with "
            "flax.linen.logical_axis_rules(rules):`"
        )
    return rules


def _tactics(
    specs: Mapping[str, tuple[Axes, ...]], others: Sequence[str]
) -> Iterator[Tactic]:
    """One `shard` tactic per mesh axis, and one `replicate` for axes that split no array.

    If several axes split one dim, the major axis comes first.
    specs: for each array path, the axes of each dim.
    others: axes of the mesh that must not split a named array unless `specs` says so.
    """
    left = {
        (path, dim): list(axes)
        for path, spec in specs.items()
        for dim, axes in enumerate(spec)
        if axes
    }
    used = {p: {a for axes in spec for a in axes} for p, spec in specs.items()}
    blocked: set[str] = set()
    while any(left.values()):
        heads = dict.fromkeys(axes[0] for axes in left.values() if axes)
        later = {axis for axes in left.values() for axis in axes[1:]}
        axis = next((a for a in heads if a not in later), next(iter(heads)))
        dims: dict[str, Dim] = {}
        if axis not in blocked:
            whole = [path for path in specs if axis not in used[path]]
            dims.update(dict.fromkeys(map(_leaves, whole), REPLICATED))
            blocked.add(axis)
        for (path, dim), axes in left.items():
            if axes and axes[0] == axis:
                dims[_leaves(path)] = dim
                axes.pop(0)
        yield shard(dims, axis)
    unused = tuple(axis for axis in others if axis not in blocked)
    if unused:
        yield replicate(*map(_leaves, specs), axis=unused)


def _leaves(path: str) -> str:
    """The pattern of an array's path, also for an array in a Flax box."""
    return path if "*" in path else f"{path}.**"


# -- trees of names -----------------------------------------------------------------------


def named_arrays(tree: Any, path: str) -> Iterator[NamedArray]:
    """The arrays of a tree whose dims have logical names, each with its path."""
    flat, _ = jax.tree_util.tree_flatten_with_path(tree, is_leaf=_has_names)
    for keys, leaf in flat:
        names = _names_of(leaf)
        if names is None:
            continue
        parts = [path] if path else []
        name = ".".join([*parts, *map(_component, keys)])
        shape = _shape_of(leaf)
        if shape is not None and len(shape) != len(names):
            raise TacticError(
                f"{name} has {len(shape)} dims, but the logical names {names}"
            )
        yield NamedArray(name, names)


def _shape_of(leaf: Any) -> tuple[int, ...] | None:
    """The shape of the array in a Flax box or variable; `None` if it holds no array."""
    if hasattr(leaf, "get_value"):
        return getattr(leaf.get_value(), "shape", None)
    value = leaf.value if hasattr(leaf, "unbox") else None
    return getattr(value, "shape", None)


def _component(key: Any) -> str:
    """A tree key as a path component; a user's key with "." is kept as a pattern."""
    text = getattr(key, "key", None)
    return text if isinstance(text, str) and "." in text else path_component(key)


def _has_names(leaf: Any) -> bool:
    return _names_of(leaf) is not None or hasattr(leaf, "get_metadata")


def _names_of(leaf: Any) -> Names | None:
    """The logical names of an array's dims; `None` if it has none."""
    if hasattr(leaf, "get_metadata"):  # a variable of nnx
        metadata = leaf.get_metadata()
        keys = ("out_sharding", "sharding_names", "sharding")
        leaf = next((metadata[k] for k in keys if metadata.get(k)), None)
    elif hasattr(leaf, "names") and hasattr(leaf, "unbox"):  # a box of linen
        leaf = leaf.names
    leaf = getattr(leaf, "spec", leaf)
    if not isinstance(leaf, tuple | PartitionSpec) or hasattr(leaf, "_fields"):
        return None
    names = tuple(leaf)
    is_named = all(name is None or isinstance(name, str) for name in names)
    return names if is_named and any(names) else None


# -- rules from a plan ---------------------------------------------------------------------


def rules_of_plan(
    inputs: Sequence[Leaf], logical_axes: Any, path: str
) -> list[tuple[str, str | Axes | None]]:
    """Logical axis rules that give named arrays the shardings that they have in a plan.

    inputs: the plan's inputs. logical_axes, path: as for `from_logical_axes`.
    """
    arrays = [
        (leaf, array.names)
        for array in named_arrays(logical_axes, path)
        for leaf in _leaves_of(inputs, array)
    ]
    if not arrays:
        raise PlanError("no array in the tree of logical axes has names for its dims")
    wanted: dict[str, dict[Axes, str]] = {}  # name -> axes -> an array's path
    for leaf, names in arrays:
        for dim, (name, axes) in enumerate(zip(names, leaf.spec, strict=True)):
            if any(SUB_AXIS in axis for axis in axes):
                raise PlanError(
                    f"dim {dim} of {leaf.path} is split along part of an axis, "
                    f"{'.'.join(axes)}, which no logical axis rule can say"
                )
            if name is None and axes:
                raise PlanError(
                    f"dim {dim} of {leaf.path} is split along {', '.join(axes)}, but has "
                    "no logical name; give it one"
                )
            if name is not None:
                wanted.setdefault(name, {}).setdefault(axes, leaf.path)
    chosen = {name: _one_of(name, found) for name, found in wanted.items()}
    rules = tuple((name, chosen[name]) for name in _order(arrays, chosen, wanted))
    for leaf, names in arrays:
        _require_rebuilt(leaf, names, rules)
    return [(n, axes[0] if len(axes) == 1 else axes or None) for n, axes in rules]


def _leaves_of(inputs: Sequence[Leaf], array: NamedArray) -> list[Leaf]:
    found = [leaf for leaf in inputs if matches(_leaves(array.path), leaf.path)]
    if not found:
        there = ", ".join(leaf.path for leaf in inputs[:8])
        raise PlanError(
            f"the plan has no argument {array.path}; there are {there}; `path` says "
            "where the tree is among the arguments, such as path='state.params'"
        )
    for leaf in found:
        if len(leaf.spec) != len(array.names):
            raise PlanError(
                f"{leaf} has {len(leaf.spec)} dims, but the logical names {array.names}"
            )
    return found


def _one_of(name: str, found: Mapping[Axes, str]) -> Axes:
    """The mesh axes of a logical name; `PlanError` if arrays split it along different axes.

    found: the axes that split dims of this name, each with the path of one such array.
    """
    axes = [each for each in found if each]
    if len(axes) > 1:
        one, other = axes[:2]
        raise PlanError(
            f"the logical axis {name!r} would need two rules: it is split along "
            f"{', '.join(one)} in {found[one]} and along {', '.join(other)} in "
            f"{found[other]}; give the dim of one of them another name"
        )
    return axes[0] if axes else ()


def _order(
    arrays: Sequence[tuple[Leaf, Names]],
    chosen: Mapping[str, Axes],
    wanted: Mapping[str, Mapping[Axes, str]],
) -> list[str]:
    """The logical names in an order of precedence that gives each array its sharding.

    If an array leaves a name unsplit because another of its names uses the axis, the other
    name's rule must come first.
    """
    before: dict[str, set[str]] = {name: set() for name in wanted}
    for leaf, names in arrays:
        for name, axes in zip(names, leaf.spec, strict=True):
            if name is None or axes == chosen[name]:
                continue
            pairs = zip(names, leaf.spec, strict=True)
            before[name] |= {m for m, own in pairs if m and set(own) & {*chosen[name]}}
    try:
        return list(TopologicalSorter(before).static_order())
    except CycleError as error:
        names = ", ".join(map(repr, dict.fromkeys(error.args[1])))
        raise PlanError(
            f"no order of rules suits the logical axes {names}: each would have to come "
            "before the other; give some of their dims another name"
        ) from None


def _require_rebuilt(leaf: Leaf, names: Names, rules: Rules) -> None:
    for name, axes, got in zip(
        names, leaf.spec, axes_of_names(names, rules), strict=True
    ):
        if axes != got:
            raise PlanError(
                f"the logical axis {name!r} is split along {', '.join(got)} by its rule, "
                f"but is {'split along ' + ', '.join(axes) if axes else 'whole'} in "
                f"{leaf}; give the dim of {leaf.path} another name"
            )
