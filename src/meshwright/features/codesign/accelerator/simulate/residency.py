"""Fusion across layers: which values stay in the global memory, as an integer program.

A value that stays is neither written to main memory nor read from it. It takes room from
the layer that makes it to the last one that reads it, weights always. What a layer gains
depends on all its values together, since its time is the longest of its parts. (FAST, Zhang
et al., ASPLOS 2022, states it per op; here a value stays for its whole life, and room is
counted at every layer.)

A layer's time is the least number that is no less than each part, and the part of main
memory is linear in the choices. So the program has one 0-1 variable for each value and
one number for each layer, and HiGHS solves it. As an `Assignment` it would need
a choice for every subset of a layer's values.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import optimize, sparse

from meshwright.features.codesign.accelerator.workload.layers import LayerValue

_SOLVER: Any = optimize

_MOST_S = 10.0
"""Seconds after which the best choice so far is taken, with its gap."""


@dataclass(frozen=True, slots=True)
class LayerLoad:
    """Seconds of a layer by part, and the bytes that its values cost in main memory.

    parts_s: without main memory. held_bytes: of its tiles in the global memory.
    """

    parts_s: Mapping[str, float]
    reads: Mapping[int, float]
    writes: Mapping[int, float]
    held_bytes: float
    times: int

    def dram_bytes(self, resident: frozenset[int]) -> float:
        """Bytes that cross the chip's border if some values stay on the chip."""
        return sum(
            num_bytes
            for side in (self.reads, self.writes)
            for number, num_bytes in side.items()
            if number not in resident
        )

    def seconds(self, resident: frozenset[int], bytes_per_s: float) -> float:
        """Seconds of one execution: the longest part."""
        return max(*self.parts_s.values(), self.dram_bytes(resident) / bytes_per_s)


@dataclass(frozen=True, slots=True)
class Residency:
    """The values that stay on the chip.

    resident: their positions in `Workload.tensors`.
    peak_bytes: most bytes of the global memory in use, tiles included.
    saved_s: seconds of a call that they save.
    gap: how far the saving may be from the largest possible, as a share of the call.
    """

    resident: frozenset[int] = frozenset()
    peak_bytes: float = 0.0
    saved_s: float = 0.0
    gap: float = 0.0


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A value that may stay: from the layer that makes it to the last that reads it."""

    tensor: int
    num_bytes: float
    life: tuple[int, int]
    layers: tuple[int, ...]


def fuse(
    loads: Sequence[LayerLoad],
    tensors: Sequence[LayerValue],
    room_bytes: float,
    bytes_per_s: float,
) -> Residency:
    """The values that save the most time while they stay in `room_bytes` of memory."""
    held = max((load.held_bytes for load in loads), default=0.0)
    candidates = (
        _candidates(loads, tensors, room_bytes, bytes_per_s) if room_bytes else []
    )
    if not candidates:
        return Residency(peak_bytes=held)
    chosen, gap = _solve(loads, candidates, room_bytes, bytes_per_s)
    taken = [
        each for each, is_taken in zip(candidates, chosen, strict=True) if is_taken
    ]
    resident = frozenset(each.tensor for each in taken)
    saved_s = sum(
        load.times
        * (load.seconds(frozenset(), bytes_per_s) - load.seconds(resident, bytes_per_s))
        for load in loads
    )
    return Residency(resident, _peak(loads, taken), saved_s, gap)


def _candidates(
    loads: Sequence[LayerLoad],
    tensors: Sequence[LayerValue],
    room_bytes: float,
    bytes_per_s: float,
) -> list[_Candidate]:
    """The values that could save time, and fit."""
    users = defaultdict[int, list[int]](list)
    makers: dict[int, int] = {}
    for i, load in enumerate(loads):
        for number in {**load.reads, **load.writes}:
            users[number].append(i)
        for number in load.writes:
            makers.setdefault(number, i)
    gains = [
        load.seconds(frozenset(), bytes_per_s) > max(load.parts_s.values())
        for load in loads
    ]
    found: list[_Candidate] = []
    for number, where in users.items():
        value = tensors[number]
        if not value.is_weight and (number not in makers or len(where) < 2):
            continue  # it comes from outside, or leaves the program
        if any(gains[i] for i in where):
            life = (0, len(loads)) if value.is_weight else (min(where), max(where) + 1)
            size = value.num_bytes * value.times
            found.append(_Candidate(number, size, life, tuple(where)))
    return [each for each in found if each.num_bytes <= room_bytes]


def _solve(
    loads: Sequence[LayerLoad],
    candidates: Sequence[_Candidate],
    room_bytes: float,
    bytes_per_s: float,
) -> tuple[list[bool], float]:
    """Whether each value stays, and the gap to the best bound.

    Variables are the values, and the seconds of each layer that uses any of them.
    """
    layers = sorted({i for each in candidates for i in each.layers})
    count, place = len(candidates), {i: n for n, i in enumerate(layers)}
    before = np.array([loads[i].dram_bytes(frozenset()) for i in layers]) / bytes_per_s
    unit_s = float(before.mean())  # HiGHS's tolerances are absolute
    saved = sparse.lil_array((len(layers), count))
    for g, each in enumerate(candidates):
        for i in each.layers:
            kept = loads[i].dram_bytes(frozenset({each.tensor})) / bytes_per_s
            saved[place[i], g] = (before[place[i]] - kept) / unit_s
    # Time of a layer + what its values save >= its time with main memory.
    longest = _SOLVER.LinearConstraint(
        sparse.hstack([saved, sparse.eye_array(len(layers))], format="csr"),
        lb=before / unit_s,
    )
    floors = [max(loads[i].parts_s.values()) / unit_s for i in layers]
    times = [float(loads[i].times) for i in layers]
    room = _room(loads, candidates, room_bytes, len(layers))
    found = _SOLVER.milp(
        np.array([0.0] * count + times),
        integrality=np.array([1] * count + [0] * len(layers)),
        bounds=_SOLVER.Bounds(
            np.array([0.0] * count + floors),
            np.array([1.0] * count + [np.inf] * len(layers)),
        ),
        constraints=[longest, room],
        options={"time_limit": _MOST_S, "mip_rel_gap": 1e-6},
    )
    if found.x is None:
        return [False] * count, 1.0
    return [x > 0.5 for x in found.x[:count]], float(found.mip_gap or 0.0)


def _room(
    loads: Sequence[LayerLoad],
    candidates: Sequence[_Candidate],
    room_bytes: float,
    num_layers: int,
) -> Any:
    """At each layer, what stays fits beside its tiles; equal rows are written once."""
    rows: dict[tuple[int, ...], float] = {}
    for i, load in enumerate(loads):
        alive = tuple(
            g for g, each in enumerate(candidates) if each.life[0] <= i < each.life[1]
        )
        left = max(0.0, room_bytes - load.held_bytes)
        rows[alive] = min(left, rows.get(alive, room_bytes))
    use = sparse.lil_array((len(rows), len(candidates) + num_layers))
    for row, alive in enumerate(rows):
        for g in alive:
            use[row, g] = candidates[g].num_bytes / room_bytes
    return _SOLVER.LinearConstraint(
        use.tocsr(), ub=np.array(list(rows.values())) / room_bytes
    )


def _peak(loads: Sequence[LayerLoad], taken: Sequence[_Candidate]) -> float:
    """Most bytes in use at any layer."""
    use = [load.held_bytes for load in loads]
    for each in taken:
        for i in range(*each.life):
            use[i] += each.num_bytes
    return max(use, default=0.0)
