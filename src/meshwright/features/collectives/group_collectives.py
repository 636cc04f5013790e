"""Seconds of a collective in equal groups of devices that run at the same time.

`collective.py` prices the collectives of plans, in which all devices take part. Here some
groups may be idle, the library's algorithm is an argument, and there are reduces and
broadcasts as well; within one level and without idle groups both agree.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

from meshwright.features.collectives.instruction import CollectiveKind
from meshwright.machine import Kind
from meshwright.machine.placement import Segment
from meshwright.predict.links.collective import (
    joint_all_gather_s,
    levelwise_all_gather_s,
    start_s,
    with_switch_gain,
)
from meshwright.predict.links.rings import (
    Path,
    by_level,
    joint_latency_s,
    joint_ring_bytes_per_s,
    num_detours,
    num_devices,
)


class Library(Enum):
    """The algorithm by which the machine's library runs a collective over several levels.

    LEVELS: level after level. RING: one ring of all devices (NCCL_ALGO=Ring). TREE: as
    RING, but all-reduces run on NCCL's double binary tree (NCCL_ALGO=Tree).
    """

    LEVELS = "levels"
    RING = "ring"
    TREE = "tree"


@dataclass(frozen=True, slots=True)
class Group:
    """Equal groups of devices, each of which runs a collective at the same time.

    segments: parts of grid dims over which a group extends.
    idle_share: number of groups that share the same links, if only one of them is active.
    """

    segments: tuple[Segment, ...]
    idle_share: int = 1


def group_collective_s(
    collective: CollectiveKind, num_bytes: float, group: Group, library: Library
) -> float:
    """Seconds of a collective in each group.

    num_bytes: bytes that a device holds before it; after it for an all-gather.
    """
    if num_devices(group.segments) < 2:
        return 0.0
    passes = 2 if collective is CollectiveKind.ALL_REDUCE else 1
    if collective is CollectiveKind.ALL_REDUCE:
        group = replace(group, segments=tuple(with_switch_gain(group.segments)))
    return passes * start_s(group.segments) + _moving_s(
        collective, num_bytes, group, library
    )


def _moving_s(
    collective: CollectiveKind, num_bytes: float, group: Group, library: Library
) -> float:
    """Seconds in which the data of a collective moves."""
    if library is Library.TREE and collective is CollectiveKind.ALL_REDUCE:
        return tree_all_reduce_s(num_bytes, group)
    is_levelwise = library is Library.LEVELS
    if collective in (CollectiveKind.REDUCE, CollectiveKind.BROADCAST):
        price_s = levelwise_chain_s if is_levelwise else chain_s
        return price_s(num_bytes, group)
    price_s = levelwise_all_gather_s if is_levelwise else joint_all_gather_s
    gather_s = price_s(num_bytes, group.segments, group.idle_share)
    return 2 * gather_s if collective is CollectiveKind.ALL_REDUCE else gather_s


def chain_s(num_bytes: float, group: Group) -> float:
    """Seconds of a reduce or broadcast that is pipelined from device to device."""
    rate = joint_ring_bytes_per_s(group.segments, group.idle_share, path=Path.CHAIN)
    return num_bytes / rate + joint_latency_s(group.segments)


def levelwise_chain_s(num_bytes: float, group: Group) -> float:
    """Seconds of a reduce or broadcast that goes level by level.

    Only one device of each joined group takes part in the next level.
    """
    total, inside = 0.0, 1
    for _, parts in by_level(group.segments):
        total += chain_s(num_bytes, Group(parts, group.idle_share * inside))
        inside *= num_devices(parts)
    return total


def tree_all_reduce_s(num_bytes: float, group: Group) -> float:
    """Seconds of an all-reduce by chains within nodes and two trees between them.

    A node is a group of the innermost level of the machine. All parts are pipelined, so
    that the slowest sets the pace. Each of NCCL's two binary trees reduces half of the
    bytes and broadcasts them; inner nodes of one are leaves of the other (Sanders, Speck,
    Traeff, "Two-Tree Algorithms for Full Bandwidth Broadcast, Reduction and Scan", 2009).
    """
    inner = [part for part in group.segments if part.dim.num_inner == 1]
    outer = [part for part in group.segments if part.dim.num_inner > 1]
    slowest_s = 0.0
    if outer:
        inside = num_devices(inner)
        rate = joint_ring_bytes_per_s(outer, group.idle_share, inside=inside)
        # The bytes that the busiest node sends: half to a parent or child of either tree.
        load = min(num_devices(outer) / 2, 2)
        slowest_s = num_bytes * load / rate
    if inner:
        rate = joint_ring_bytes_per_s(inner, path=Path.LINE)
        slowest_s = max(slowest_s, num_bytes * _chain_load(inner) / rate)
    return slowest_s + 2 * joint_latency_s(group.segments)


def _chain_load(inner: Sequence[Segment]) -> int:
    """Times that the bytes cross the busiest link of a chain, up and down.

    The middle of a chain receives from both sides: over two links of a torus, but over
    one at a switch. Both directions share the host, if devices do not forward.
    """
    level, count = inner[0].dim.level, num_devices(inner)
    if level.kind is Kind.SWITCH:
        return 1 if count == 2 else 2
    return 2 if level.detour_bytes_per_s and num_detours(inner, Path.LINE) else 1
