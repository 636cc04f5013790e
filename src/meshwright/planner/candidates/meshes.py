"""The meshes worth trying on a machine, and the experts' strategies on each."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from meshwright.machine import Machine, Mesh
from meshwright.machine.placement import place_mesh
from meshwright.partitioner.tactics import (
    Tactic,
    data_parallel,
    expert_parallel,
    fsdp,
    megatron,
    sequence_parallel,
    zero,
)

NAMES = ("data", "model", "more")
"""Of the axes; what they carry is for the search to say."""

MOST_AXES = len(NAMES)
"""That a mesh can have here."""


def meshes_of(
    machine: Machine, most_axes: int = 2, named: Sequence[str] = ()
) -> tuple[Mesh, ...]:
    """All meshes that use a whole machine, those of few axes first.

    Of as many axes those first whose last one is about as long as the fastest links reach.

    named: axes that each has, beside others. Of two meshes that lie on the same links
    under other names, the first; but what is named counts as it lies.
    """
    names = _names(named)
    found: dict[object, Mesh] = {}
    for count in range(max(1, len(named)), most_axes + 1):
        others = [name for name in names if name not in named]
        own = {*named, *others[: count - len(named)]}
        axes = [name for name in names if name in own]
        for sizes in _factorings(machine.num_devices, count):
            mesh = Mesh(dict(zip(axes, sizes, strict=True)))
            placed = place_mesh(mesh, machine).segments
            lies = (
                (repr(runs), axis if axis in named else "") for axis, runs in placed
            )
            found.setdefault(tuple(sorted(lies)), mesh)
    inner = _inner_devices(machine)

    def from_natural(mesh: Mesh) -> tuple[int, float]:
        last = mesh.sizes[-1][1]
        return len(mesh.axes), abs(math.log2(last / inner)) if inner else 0.0

    return tuple(sorted(found.values(), key=from_natural))


def _inner_devices(machine: Machine) -> int:
    """How many devices the fastest links join; 0 where there is but one kind of link."""
    fastest = machine.levels[0] if machine.levels else None
    joined = [dim.extent for dim in machine.grid if dim.level is fastest]
    extent = math.prod(joined)
    return extent if 1 < extent < machine.num_devices else 0


def _names(named: Sequence[str]) -> list[str]:
    """Ours, with a name that is not among them in place of the first that is free."""
    free = [name for name in NAMES if name not in named]
    foreign = [name for name in named if name not in NAMES]
    instead = dict(zip(free, foreign, strict=False))
    return [instead.get(name, name) for name in NAMES]


def _factorings(size: int, count: int) -> Iterator[tuple[int, ...]]:
    """Ways to write `size` as `count` factors above 1, the largest first."""
    if count == 1:
        if size > 1:
            yield (size,)
        return
    for first in range(size // 2, 1, -1):
        if size % first == 0:
            for rest in _factorings(size // first, count - 1):
                yield (first, *rest)


def experts_of(mesh: Mesh) -> Mapping[str, tuple[Tactic, ...]]:
    """What people do by hand on a mesh, by name."""
    match mesh.axes:
        case (axis,):
            return _on_one_axis(axis)
        case (outer, inner):
            return _on_two_axes(outer, inner)
        case (outer, middle, inner):
            return _on_three_axes(outer, middle, inner)
        case _:
            return {}


def _on_one_axis(axis: str) -> Mapping[str, tuple[Tactic, ...]]:
    data = data_parallel(axis)
    return {
        "data parallel": (data,),
        "ZeRO-2": (data, zero(2, axis)),
        "ZeRO-3": (data, zero(3, axis)),
        "FSDP": (data, fsdp(axis)),
        "expert parallel": (data, expert_parallel(axis)),
        "Megatron": (megatron(axis),),
    }


def _on_two_axes(outer: str, inner: str) -> Mapping[str, tuple[Tactic, ...]]:
    data, model, sequence = (
        data_parallel(outer),
        megatron(inner),
        sequence_parallel(inner),
    )
    return {
        "Megatron + data": (data, model),
        "Megatron + ZeRO-2": (data, model, zero(2, outer)),
        "Megatron + ZeRO-3": (data, model, zero(3, outer)),
        "Megatron + sequence + ZeRO-3": (data, model, sequence, zero(3, outer)),
        "data on both axes": (data, data_parallel(inner)),
        "expert + data parallel": (data, expert_parallel(inner)),
        "expert + ZeRO-3": (data, expert_parallel(inner), zero(3, outer)),
    }


def _on_three_axes(
    outer: str, middle: str, inner: str
) -> Mapping[str, tuple[Tactic, ...]]:
    data, more, model = data_parallel(outer), data_parallel(middle), megatron(inner)
    return {
        "Megatron + data on both": (data, more, model),
        "Megatron + data on both + ZeRO-3": (data, more, model, zero(3, outer)),
        "Megatron + expert + ZeRO-3": (
            data, expert_parallel(middle), model, zero(3, outer)
        ),
    }  # fmt: skip


def shape_text(mesh: Mesh) -> str:
    """`data=8,model=4`."""
    return ",".join(f"{axis}={size}" for axis, size in mesh.sizes)
