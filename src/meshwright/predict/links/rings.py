"""Bandwidth of rings: of one level, and of one ring through several levels.

Each step of a ring sends one chunk over every one of its hops, so that the slowest hop
sets the pace. A link that several groups cross at the same time is shared by them.
"""

import math
from collections.abc import Sequence
from enum import Enum
from itertools import groupby

from meshwright.machine import Kind, Level
from meshwright.machine.placement import Segment


class Path(Enum):
    """The way of data through all devices of a group.

    RING: from each device to the next, and from the last to the first. CHAIN: a ring
    without one hop, which depends on the root; the library does not choose the ring by
    it. LINE: from the first device to the last in order.
    """

    RING = "ring"
    CHAIN = "chain"
    LINE = "line"


def num_devices(segments: Sequence[Segment]) -> int:
    """The number of devices of one group."""
    return math.prod(s.extent for s in segments)


def by_level(
    segments: Sequence[Segment],
) -> list[tuple[Level, tuple[Segment, ...]]]:
    """Segments grouped by level, from the innermost level to the outermost."""
    ordered = sorted(
        segments, key=lambda s: (s.dim.num_inner, -s.dim.level.link_bytes_per_s)
    )
    groups = groupby(ordered, key=lambda s: s.dim.level)
    return [(level, tuple(parts)) for level, parts in groups]


def ring_bytes_per_s(
    level: Level, parts: Sequence[Segment], idle_share: int = 1
) -> float:
    """Bytes per second into one device from all directions, within one level.

    idle_share: number of groups that share the same links, if only one of them is active.
    """
    if level.kind is Kind.SWITCH:
        return device_bytes_per_s(level, parts[0].dim.num_inner / idle_share)
    if level.detour_bytes_per_s:
        return _forwardless_bytes_per_s(level, parts, Path.RING)
    return sum(
        (2 if part.is_ring else 1) * level.link_bytes_per_s / part.stride
        for part in parts
    )


def device_bytes_per_s(level: Level, num_inner: float) -> float:
    """Bytes per second of one device at a switch.

    num_inner: number of busy devices of a joined group.
    """
    if not level.group_links:
        return level.link_bytes_per_s
    return level.link_bytes_per_s * level.group_links / max(1.0, num_inner)


def joint_ring_bytes_per_s(
    segments: Sequence[Segment],
    idle_share: int = 1,
    *,
    path: Path = Path.RING,
    inside: int = 1,
) -> float:
    """Bytes per second over each hop of one ring through all devices of a group.

    The ring enters and leaves each joined group once. If its devices have links of their
    own to the level, it is cut into as many rings, each through another device.
    idle_share: of so many groups that share links, one is active.
    inside: number of devices by which the group enters the innermost of these levels.
    """
    rate = math.inf
    levels = by_level(segments)
    for position, (level, parts) in enumerate(levels):
        is_last = position == len(levels) - 1
        if level.kind is Kind.SWITCH:
            rate = min(rate, _switch_bytes_per_s(level, parts, inside, idle_share))
        elif level.detour_bytes_per_s:
            within = path if is_last else Path.LINE
            rate = min(rate, inside * _forwardless_bytes_per_s(level, parts, within))
        else:
            rate = min(rate, inside * ring_bytes_per_s(level, parts))
        inside *= num_devices(parts)
    return rate


def _switch_bytes_per_s(
    level: Level, parts: Sequence[Segment], inside: int, idle_share: int
) -> float:
    """Bytes per second at a switch for a group with `inside` devices in a joined group."""
    if not level.group_links:
        return inside * level.link_bytes_per_s
    whole = level.group_links * level.link_bytes_per_s
    return min(whole, whole * inside * idle_share / parts[0].dim.num_inner)


def _forwardless_bytes_per_s(
    level: Level, parts: Sequence[Segment], path: Path
) -> float:
    """Bytes per second over each hop in a torus whose devices do not forward.

    Hops between devices that are not neighbours all cross the host.
    """
    dim, run = parts[0].dim, _contiguous(parts)
    is_ring = dim.is_ring and run == dim.extent
    ways = 2 if is_ring and path is not Path.LINE else 1
    rate = ways * level.link_bytes_per_s if run > 1 else math.inf
    detours = num_detours(parts, path)
    if not detours:
        return rate
    groups = dim.extent // num_devices(parts)
    return min(rate, level.detour_bytes_per_s / (detours * groups))


def num_detours(parts: Sequence[Segment], path: Path) -> float:
    """Mean number of hops along one dim between devices that are not neighbours."""
    count, dim, run = num_devices(parts), parts[0].dim, _contiguous(parts)
    if path is Path.LINE:
        return count // run - 1
    closes = run == count and (count == 2 or (dim.is_ring and run == dim.extent))
    detours = 0 if closes else count // run
    return detours if path is Path.RING else detours * (count - 1) / count


def _contiguous(parts: Sequence[Segment]) -> int:
    """The number of consecutive devices along a dim of which a group is made."""
    run = 1
    for part in sorted(parts, key=lambda p: p.stride):
        if part.stride == run:
            run *= part.extent
    return run


def num_hops(level: Level, parts: Sequence[Segment]) -> int:
    """Links to the farthest device of the group."""
    if level.kind is Kind.SWITCH:
        return 1
    return sum(p.extent // 2 if p.is_ring else p.extent - 1 for p in parts)


def joint_latency_s(segments: Sequence[Segment]) -> float:
    """Seconds until a byte has passed all devices of a group: by a ring, or by a tree.

    Within one level it goes to the farthest device only, as in `collective.py`. A ring
    over several levels passes all devices one after another; of many devices, a library
    takes a tree for small arrays.
    """
    levels = by_level(segments)
    if len(levels) == 1:
        return num_hops(*levels[0]) * levels[0][0].latency_s
    total, outer = 0.0, 1
    for level, parts in reversed(levels):
        count = num_devices(parts)
        total += outer * (count - 1) * level.latency_s
        outer *= count
    tree_s = sum(
        math.ceil(math.log2(num_devices(parts))) * level.latency_s
        for level, parts in levels
    )
    return min(total, tree_s)
