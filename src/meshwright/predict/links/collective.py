"""Seconds of a collective over the links on which its mesh axes lie.

On each dim of a torus a bidirectional ring runs, on all dims at the same time. A group
with a stride along a dim shares the dim's links with as many other groups. Levels of
the network run one after another (hierarchical collectives), each with the bytes that
are left after the levels before it. If the machine says that its library does not do so
(`Level.one_ring`), one ring runs through all devices.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from meshwright.machine import Kind, Level
from meshwright.machine.placement import Segment
from meshwright.predict.links.rings import (
    by_level,
    device_bytes_per_s,
    joint_latency_s,
    joint_ring_bytes_per_s,
    num_devices,
    num_hops,
    ring_bytes_per_s,
)


def all_gather_s(num_bytes: float, segments: Sequence[Segment]) -> float:
    """Seconds until every device has all `num_bytes`, of which each had an equal share.

    Outer levels go first, when each device has least.
    """
    gather_s = joint_all_gather_s if is_one_ring(segments) else levelwise_all_gather_s
    started_s = start_s(segments) + ramp_s(num_bytes, segments)
    return started_s + gather_s(num_bytes, segments)


def start_s(segments: Sequence[Segment]) -> float:
    """Seconds of a collective before its data moves."""
    return max((part.dim.level.start_s for part in segments), default=0.0)


_HALF_RAMP_BYTES = 16 * 2**20
"""Size of an array that takes half of the largest `Level.ramp_s`.

NCCL's all-reduces on eight H200 take 42 us beyond their rate for 1 MiB, 73 us for
16 MiB, 95 us for 64 MiB and 102 us for 256 MiB (Bekman, Machine Learning Engineering
(2026), network/README.md)."""


def ramp_s(num_bytes: float, segments: Sequence[Segment]) -> float:
    """Seconds of a collective until the data of a large array moves at the full rate."""
    largest = max((part.dim.level.ramp_s for part in segments), default=0.0)
    return largest * num_bytes / (num_bytes + _HALF_RAMP_BYTES)


def is_one_ring(segments: Sequence[Segment]) -> bool:
    """Whether the machine's library runs one ring through all levels of a group."""
    levels = by_level(segments)
    return len(levels) > 1 and levels[-1][0].one_ring > 0


def levelwise_all_gather_s(
    num_bytes: float, segments: Sequence[Segment], idle_share: int = 1
) -> float:
    """Seconds of an all-gather that goes level by level, the outermost level first.

    idle_share: number of groups that share the same links, if only one of them is active.
    """
    levels = by_level(segments)
    total, held = 0.0, num_bytes / num_devices(segments)
    for level, parts in reversed(levels):
        count = num_devices(parts)
        total += held * (count - 1) / ring_bytes_per_s(level, parts, idle_share)
        total += num_hops(level, parts) * level.latency_s
        held *= count
    return total


def joint_all_gather_s(
    num_bytes: float, segments: Sequence[Segment], idle_share: int = 1
) -> float:
    """Seconds of an all-gather by one ring through all devices of a group.

    idle_share: number of groups that share the same links, if only one of them is active.
    """
    if not segments:
        return 0.0
    count = num_devices(segments)
    rate = joint_ring_bytes_per_s(segments, idle_share)
    return num_bytes * (count - 1) / count / rate + joint_latency_s(segments)


def reduce_scatter_s(num_bytes: float, segments: Sequence[Segment]) -> float:
    """Seconds until every device has its share of the sum of arrays of `num_bytes`.

    A reduce-scatter takes the steps of an all-gather in reverse order.
    """
    return all_gather_s(num_bytes, segments)


def all_reduce_s(num_bytes: float, segments: Sequence[Segment]) -> float:
    """Seconds for a reduce-scatter and an all-gather of `num_bytes`.

    A switch that adds by itself takes less (`Level.switch_gain`).
    """
    return 2 * all_gather_s(num_bytes, with_switch_gain(segments))


def with_switch_gain(segments: Sequence[Segment]) -> Sequence[Segment]:
    """The segments of an all-reduce, with faster links where a switch itself adds.

    A switch adds only for a group of all its devices.
    """
    gaining = [
        level
        for level, parts in by_level(segments)
        if level.switch_gain > 1 and num_devices(parts) == level.largest
    ]
    return [
        replace(part, dim=replace(part.dim, level=_with_gain(part.dim.level)))
        if part.dim.level in gaining
        else part
        for part in segments
    ]


def _with_gain(level: Level) -> Level:
    return replace(level, link_bytes_per_s=level.link_bytes_per_s * level.switch_gain)


def all_to_all_s(num_bytes: float, segments: Sequence[Segment]) -> float:
    """Seconds until each device has sent a share of its `num_bytes` to every other device.

    On a torus the links across the middle of a dim are the bottleneck: on a line each
    of them carries a quarter of the dim's bytes, on a ring half as much. At a switch a
    device sends all bytes except its own share.
    """
    total = start_s(segments)
    for level, parts in by_level(segments):
        if level.kind is Kind.SWITCH:
            count = num_devices(parts)
            seconds = num_bytes * (count - 1) / count / ring_bytes_per_s(level, parts)
        else:
            seconds = max(_crossing_s(num_bytes, part) for part in parts)
        total += seconds + num_hops(level, parts) * level.latency_s
    return total


def permute_s(num_bytes: float, segments: Sequence[Segment]) -> float:
    """Seconds until each device has sent `num_bytes` to one other device."""
    if not segments:
        return 0.0
    slowest = min(segments, key=_hop_bytes_per_s)
    level = slowest.dim.level
    latency_s = start_s(segments) + level.latency_s
    return num_bytes / _hop_bytes_per_s(slowest) + latency_s


COLLECTIVE_S: Mapping[str, Callable[[float, Sequence[Segment]], float]] = {
    "all_gather": all_gather_s,
    "all_reduce": all_reduce_s,
    "all_to_all": all_to_all_s,
    "permute": permute_s,
    "reduce_scatter": reduce_scatter_s,
}
"""Functions by kind of collective. Bytes are those of the whole value on one device:
the gathered result, the reduced operand, or the operand of an exchange."""


def _crossing_s(num_bytes: float, part: Segment) -> float:
    """Seconds of an all-to-all on the links across the middle of one dim."""
    ways = 8 if part.is_ring else 4
    rate = part.dim.level.link_bytes_per_s / part.stride
    return num_bytes * part.extent / ways / rate


def _hop_bytes_per_s(part: Segment) -> float:
    """Bytes per second from each device of a segment to the next one."""
    level = part.dim.level
    if level.kind is Kind.SWITCH:
        return device_bytes_per_s(level, part.dim.num_inner)
    return level.link_bytes_per_s / part.stride
