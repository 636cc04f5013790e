"""The meshes worth trying on a machine, and the experts' strategies on each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from meshwright.machine import Machine, Mesh
from meshwright.machine.placement import place_mesh
from meshwright.tactics import (
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


def meshes_of(machine: Machine, most_axes: int = 2) -> tuple[Mesh, ...]:
    """All meshes that use a whole machine, those of few axes first.

    Of two that lie on the same links under other names, the first.
    """
    found: dict[object, Mesh] = {}
    for count in range(1, most_axes + 1):
        for sizes in _factorings(machine.num_devices, count):
            mesh = Mesh(dict(zip(NAMES, sizes, strict=False)))
            placed = place_mesh(mesh, machine).segments
            key = tuple(sorted(repr(segments) for _, segments in placed))
            found.setdefault(key, mesh)
    return tuple(found.values())


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
        case _:
            return {}


def _on_one_axis(axis: str) -> Mapping[str, tuple[Tactic, ...]]:
    data = data_parallel(axis)
    return {
        "data parallel": (data,),
        "ZeRO-2": (data, zero(2, axis)),
        "ZeRO-3": (data, zero(3, axis)),
        "FSDP": (data, fsdp(axis)),
        "Megatron": (megatron(axis),),
        "expert parallel": (data, expert_parallel(axis)),
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


def shape_text(mesh: Mesh) -> str:
    """`data=8,model=4`."""
    return ",".join(f"{axis}={size}" for axis, size in mesh.sizes)
