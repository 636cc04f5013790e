"""A search for a packing in which CP-SAT tells where the next buffer can lie.

CP-SAT holds the placements and keeps buffers that are live together apart. The search
chooses the next buffer, asks CP-SAT for its lowest feasible offset, and places it there.
If CP-SAT refutes the placements, it also names those in conflict. The search takes back
the latest of them: a minor backtrack if this is the last placement, else a major one.

Every packing can be pushed down until each buffer lies at the bottom of the memory, on
another buffer or on fixed memory. After a failure at an offset, the buffer lies on one with
a higher top. This raises its least offset at this point of the search. After `patience`
failures at one point the search gives it up without proof, and takes back the latest
placement in conflict with its candidates. It begins again with twice the patience if
nothing is left or too many nodes were tried. A run that gives up nothing is complete.
"""

from collections.abc import Iterator
from concurrent.futures import Executor
from dataclasses import dataclass, field

import numpy as np

from meshwright.features.allocate.canonical.packing_state import FitVerdict
from meshwright.features.allocate.guided.candidates import Candidates, independent_parts
from meshwright.features.allocate.guided.offset_solver import OffsetSolver
from meshwright.features.allocate.problem.sections import BufferColumns

_PATIENCE = 3
"""Failures after which a point is given up in the first run: one for each candidate."""

_RUN = 4
"""Nodes of a run over the number of buffers times its patience."""


class GuidedSearch:
    """The guided search on each independent part, one after another."""

    def __init__(self, columns: BufferColumns, capacity: int, seed: int) -> None:
        unit, scaled = _in_units(columns)
        self._unit = unit
        self._parts = [
            _PartSearch(scaled, members, capacity // unit, seed)
            for members in independent_parts(scaled)
        ]

    @property
    def nodes(self) -> int:
        """Placements that were tried."""
        return sum(part.nodes for part in self._parts)

    @property
    def minor(self) -> int:
        """Backtracks by one placement."""
        return sum(part.minor for part in self._parts)

    @property
    def major(self) -> int:
        """Backtracks by more than one placement, or from a point that was given up."""
        return sum(part.major for part in self._parts)

    def rounds(
        self, pool: Executor | None, most_nodes: int | None
    ) -> Iterator[FitVerdict]:
        """Search node by node; yields the verdict after each until it is final.

        pool: unused; CP-SAT runs on one thread. most_nodes: stop after so many nodes.
        """
        del pool
        for part in self._parts:
            verdict = FitVerdict.NONE if part.is_too_large else FitVerdict.OPEN
            if verdict is FitVerdict.OPEN:
                part.begin()
            while verdict is FitVerdict.OPEN:
                if most_nodes is not None and self.nodes >= most_nodes:
                    return
                verdict = part.step()
                if verdict is FitVerdict.OPEN:
                    yield verdict
            if verdict is FitVerdict.NONE:
                yield verdict
                return
        yield FitVerdict.FOUND

    def offsets(self) -> list[int]:
        """The offsets that were found, one per buffer without fixed offset."""
        found = {i: o for part in self._parts for i, o in part.packing.items()}
        return [self._unit * found[i] for i in range(len(found))]


@dataclass(slots=True)
class _Point:
    """A point of the search: what has failed on top of the placements so far.

    failed: buffers tried here since all candidates were. num_failed: failures.
    least: offsets below which buffers failed. blamed: depths of placements in conflict.
    buffer, offset: what is placed at this point, -1 before.
    """

    failed: set[int] = field(default_factory=set)
    num_failed: int = 0
    least: dict[int, int] = field(default_factory=dict)
    blamed: set[int] = field(default_factory=set)
    buffer: int = -1
    offset: int = -1


class _PartSearch:
    """The search on buffers that no other buffer limits."""

    def __init__(
        self, columns: BufferColumns, members: list[int], capacity: int, seed: int
    ) -> None:
        self._columns, self._members, self._capacity = columns, members, capacity
        self._rng = np.random.default_rng(seed)
        self._candidates = Candidates(columns, capacity)
        self._patience = _PATIENCE
        self._seed = seed
        self.is_too_large = any(columns.size[i] > capacity for i in members)
        self.nodes = self.minor = self.major = 0
        self.packing: dict[int, int] = {}

    def step(self) -> FitVerdict:
        """Place or take back one buffer."""
        if len(self._placed) == len(self._members):
            self.packing = self._placed
            return FitVerdict.FOUND
        point = self._points[-1]
        buffer = self._next(point)
        if buffer is None:
            return self._give_up(point)
        answer = self._solver.lowest(buffer)
        if answer.packing is not None:
            self.packing = answer.packing
            self.nodes += len(self._members) - len(self._placed)
            return FitVerdict.FOUND
        least = max(answer.bound, self._least(buffer))
        offset = self._free_offset(buffer, least)
        if answer.is_refuted or offset + self._columns.size[buffer] > self._capacity:
            return self._refuted(buffer, answer.is_refuted)
        self._place(point, buffer, offset)
        if self.nodes >= self._end:
            self._start_over()
        return FitVerdict.OPEN

    def begin(self) -> None:
        """Begin a run without any placement."""
        self._solver = OffsetSolver(
            self._columns, self._members, self._capacity, self._seed
        )
        self._placed: dict[int, int] = {}
        self._points = [_Point()]
        self._gave_up = False
        self._end = self.nodes + _RUN * len(self._members) * self._patience

    def _start_over(self) -> None:
        """Begin a run of twice the patience, in another order."""
        self._patience *= 2
        self._seed = int(self._rng.integers(2**31))
        noise = self._rng.normal(0.0, 0.3, len(self._columns.size))
        self._candidates.shuffle(np.exp(noise))
        self.begin()

    def _next(self, point: _Point) -> int | None:
        """The next candidate, or `None` if the patience is used up."""
        unplaced = [i for i in self._members if i not in self._placed]
        for buffer in self._candidates.of(unplaced, point.failed):
            return buffer
        if point.num_failed >= self._patience:
            return None
        point.failed.clear()
        return next(self._candidates.of(unplaced, ()))

    def _place(self, point: _Point, buffer: int, offset: int) -> None:
        self.nodes += 1
        point.buffer, point.offset = buffer, offset
        self._placed[buffer] = offset
        self._solver.limit(buffer, offset, offset)
        self._points.append(_Point())

    def _refuted(self, buffer: int, is_proven: bool) -> FitVerdict:
        """Take back the latest placement in conflict, as CP-SAT names the conflict.

        A raised least offset rests on all placements before it.
        """
        depth = len(self._points) - 1
        depths = set(range(depth))
        if is_proven:
            at = {p.buffer: d for d, p in enumerate(self._points[:-1])}
            raised = {i: d for d, p in enumerate(self._points) for i in p.least}
            depths = set()
            for i in self._solver.conflict():
                depths.update([at[i]] if i in at else range(raised[i]))
        return self._take_back(depths, buffer)

    def _give_up(self, point: _Point) -> FitVerdict:
        self._gave_up = True
        return self._take_back(point.blamed, next(iter(sorted(point.least)), -1))

    def _take_back(self, depths: set[int], cause: int) -> FitVerdict:
        """Return to the latest of the depths in conflict, and raise what failed there."""
        if not depths:
            if not self._gave_up:
                return FitVerdict.NONE
            self._start_over()
            return FitVerdict.OPEN
        target = max(depths)
        if target == len(self._points) - 2:
            self.minor += 1
        else:
            self.major += 1
            if cause >= 0:
                self._candidates.note_cause(cause)
        while len(self._points) > target + 1:
            self._forget(self._points.pop())
            undone = self._points[-1].buffer
            del self._placed[undone]
            self._reset_limit(undone)
        point = self._points[-1]
        point.num_failed += 1
        point.failed.add(point.buffer)
        point.blamed |= depths - {target}
        point.least[point.buffer] = self._above(point.buffer, point.offset)
        self._reset_limit(point.buffer)
        point.buffer = -1
        return FitVerdict.OPEN

    def _forget(self, point: _Point) -> None:
        raised = list(point.least)
        point.least.clear()
        for buffer in raised:
            if buffer not in self._placed:
                self._reset_limit(buffer)

    def _reset_limit(self, buffer: int) -> None:
        """Limit a buffer that is not placed to what its failures leave."""
        if least := self._least(buffer):
            self._solver.limit(buffer, least)
        else:
            self._solver.release(buffer)

    def _least(self, buffer: int) -> int:
        """The offset below which a buffer has failed, 0 if it has not."""
        return max((p.least.get(buffer, 0) for p in self._points), default=0)

    def _free_offset(self, buffer: int, least: int) -> int:
        """The lowest offset from `least` on, apart from fixed memory and placements."""
        c = self._columns
        size, align = int(c.size[buffer]), int(c.align[buffer])
        taken = c.blocks(buffer)
        for j in c.neighbours(buffer):
            if j in self._placed:
                taken.append((self._placed[j], self._placed[j] + int(c.size[j])))
        offset = -(-least // align) * align
        for low, high in sorted(taken):
            if low < offset + size and offset < high:
                offset = -(-high // align) * align
        return offset

    def _above(self, buffer: int, offset: int) -> int:
        """The next offset at which a buffer can lie on another or on fixed memory."""
        c, align = self._columns, int(self._columns.align[buffer])
        tops = [high for _, high in c.blocks(buffer)]
        for j in c.neighbours(buffer):
            size = int(c.size[j])
            if j in self._placed:
                tops.append(self._placed[j] + size)
            else:
                tops.append(
                    max(self._free_offset(j, self._least(j)) + size, offset + 1)
                )
        above = min((top for top in tops if top > offset), default=self._capacity + 1)
        return -(-above // align) * align


def _in_units(columns: BufferColumns) -> tuple[int, BufferColumns]:
    """The largest unit of all offsets of pushed-down packings, and the arrays in it."""
    aligns = columns.align[columns.align > 1]
    numbers = [columns.size, aligns, columns.block_low, columns.block_high]
    unit = int(np.gcd.reduce(np.concatenate(numbers)))
    return unit, columns._replace(
        size=columns.size // unit,
        align=np.maximum(columns.align // unit, 1),
        block_low=columns.block_low // unit,
        block_high=columns.block_high // unit,
    )
