"""Seconds of a collective over the links on which its mesh axes lie.

On each dim of a torus a bidirectional ring runs, on all dims at the same time. A group
with a stride along a dim shares the dim's links with as many other groups. Levels of
the network run one after another (hierarchical collectives), each with the bytes that
are left after the levels before it.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby

from meshwright.machine import Kind, Level
from meshwright.machine.placement import Segment


def all_gather_s(num_bytes: float, segments: Sequence[Segment]) -> float:
    """Seconds until every device has all `num_bytes`, of which each had an equal share.

    Outer levels go first, when each device has least.
    """
    total, held = 0.0, num_bytes / _devices(segments)
    for level, parts in reversed(_by_level(segments)):
        count = _devices(parts)
        total += held * (count - 1) / _ring_bytes_per_s(level, parts)
        total += _hops(level, parts) * level.latency_s
        held *= count
    return total


def reduce_scatter_s(num_bytes: float, segments: Sequence[Segment]) -> float:
    """Seconds until every device has its share of the sum of arrays of `num_bytes`.

    The steps are those of an all-gather in reverse.
    """
    return all_gather_s(num_bytes, segments)


def all_reduce_s(num_bytes: float, segments: Sequence[Segment]) -> float:
    """Seconds for a reduce-scatter and an all-gather of `num_bytes`."""
    return 2 * all_gather_s(num_bytes, segments)


def all_to_all_s(num_bytes: float, segments: Sequence[Segment]) -> float:
    """Seconds until each device has sent a share of its `num_bytes` to every other device.

    On a torus the links across the middle of a dim are the bottleneck: on a line each
    of them carries a quarter of the dim's bytes, on a ring half as much. At a switch a
    device sends all bytes except its own share.
    """
    total = 0.0
    for level, parts in _by_level(segments):
        if level.kind is Kind.SWITCH:
            count = _devices(parts)
            seconds = num_bytes * (count - 1) / count / _ring_bytes_per_s(level, parts)
        else:
            seconds = max(_crossing_s(num_bytes, part) for part in parts)
        total += seconds + _hops(level, parts) * level.latency_s
    return total


def permute_s(num_bytes: float, segments: Sequence[Segment]) -> float:
    """Seconds until each device has sent `num_bytes` to one other device."""
    if not segments:
        return 0.0
    slowest = min(segments, key=lambda s: s.dim.level.link_bytes_per_s / s.stride)
    level = slowest.dim.level
    return num_bytes * slowest.stride / level.link_bytes_per_s + level.latency_s


COLLECTIVE_S: Mapping[str, Callable[[float, Sequence[Segment]], float]] = {
    "all_gather": all_gather_s,
    "all_reduce": all_reduce_s,
    "all_to_all": all_to_all_s,
    "permute": permute_s,
    "reduce_scatter": reduce_scatter_s,
}
"""Functions by kind of collective. Bytes are those of the whole value on one device:
the gathered result, the reduced operand, or the operand of an exchange."""


def _devices(segments: Sequence[Segment]) -> int:
    return math.prod(s.extent for s in segments)


def _by_level(
    segments: Sequence[Segment],
) -> list[tuple[Level, tuple[Segment, ...]]]:
    """Segments grouped by level, from the innermost level to the outermost."""
    ordered = sorted(segments, key=lambda s: -s.dim.level.link_bytes_per_s)
    groups = groupby(ordered, key=lambda s: s.dim.level)
    return [(level, tuple(parts)) for level, parts in groups]


def _ring_bytes_per_s(level: Level, parts: Sequence[Segment]) -> float:
    """Bytes per second into one device from all directions."""
    if level.kind is Kind.SWITCH:
        return level.link_bytes_per_s
    return sum(
        (2 if part.is_ring else 1) * level.link_bytes_per_s / part.stride
        for part in parts
    )


def _crossing_s(num_bytes: float, part: Segment) -> float:
    """Seconds of an all-to-all on the links across the middle of one dim."""
    ways = 8 if part.is_ring else 4
    rate = part.dim.level.link_bytes_per_s / part.stride
    return num_bytes * part.extent / ways / rate


def _hops(level: Level, parts: Sequence[Segment]) -> int:
    """Links to the farthest device of the group."""
    if level.kind is Kind.SWITCH:
        return 1
    return sum(p.extent // 2 if p.is_ring else p.extent - 1 for p in parts)
