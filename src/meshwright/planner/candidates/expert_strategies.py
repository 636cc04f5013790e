"""The strategies that experts use by hand, for meshes of one to three axes."""

from __future__ import annotations

from collections.abc import Mapping

from meshwright.machine import Mesh
from meshwright.partitioner.tactics import (
    Tactic,
    data_parallel,
    expert_parallel,
    fsdp,
    megatron,
    sequence_parallel,
    zero,
)


def expert_strategies(mesh: Mesh) -> Mapping[str, tuple[Tactic, ...]]:
    """Tactics that experts use on a mesh, by name of the strategy."""
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
