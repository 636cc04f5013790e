"""Offsets for buffers under a capacity, or of least height: greedy first, then search."""

import math
import os
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from meshwright.errors import AllocationError, did_you_mean
from meshwright.features.allocate.allocation import Allocation, AllocationOutcome
from meshwright.features.allocate.canonical.packing_state import FitVerdict
from meshwright.features.allocate.greedy import ORDERS, greedy, height_of
from meshwright.features.allocate.guided.guided import GuidedSearch
from meshwright.features.allocate.portfolio import Portfolio, compile_search
from meshwright.features.allocate.problem.buffer import (
    MOST_BYTES,
    AnyBuffer,
    Buffer,
    as_buffers,
    live_bytes,
)
from meshwright.features.allocate.problem.packing_check import faults
from meshwright.features.allocate.problem.sections import columns_of


@dataclass(frozen=True, slots=True)
class AllocationProgress:
    """Progress of a search: seconds, nodes, the capacity asked for, the best height."""

    seconds: float
    nodes: int
    capacity: int
    height: int


type OnProgress = Callable[[AllocationProgress], None]

METHODS = {"portfolio": Portfolio, "guided": GuidedSearch}
"""Searches for a packing within a capacity, by the name of the method."""


def allocate(  # noqa: PLR0913  an option each
    buffers: Iterable[AnyBuffer],
    capacity: int | None = None,
    *,
    minimize: bool = False,
    seconds: float = 60.0,
    seed: int = 0,
    method: str = "portfolio",
    progress: OnProgress | None = None,
) -> Allocation:
    """Offsets at which buffers that are live together do not overlap, below `capacity`.

    buffers: `mw.Buffer`s, or (lower, upper, size). minimize: search for the least height
    instead of any packing within the capacity; so does a missing capacity. The result has
    the best height that `seconds` of all cores together allow, a proof that no packing
    exists, or neither.
    method: "portfolio", or "guided" for a search that asks CP-SAT for offsets.
    progress: called a few times a second. Ctrl-C ends with what has been found.

    >>> allocate([(0, 2, 4), (1, 3, 4), (2, 4, 4)], 8).offsets
    (0, 4, 0)
    """
    given = as_buffers(buffers)
    _check_arguments(given, capacity, seconds, seed)
    if method not in METHODS:
        raise AllocationError(
            f"method is {method!r}{did_you_mean(method, METHODS)}: give one of "
            f"{', '.join(METHODS)}"
        )
    search = _Search(given, capacity, seed, progress, method)
    search.start_clock(seconds)
    if (answer := search.known()) is not None:
        return answer
    if method == "portfolio":
        compile_search()
    try:
        return search.lowest() if minimize or capacity is None else search.any_within()
    except KeyboardInterrupt:
        return search.ended("interrupted")


def _check_arguments(
    buffers: Sequence[Buffer], capacity: int | None, seconds: float, seed: int
) -> None:
    if not (seconds > 0 and math.isfinite(seconds)):
        raise AllocationError(f"seconds is {seconds}: give a positive number")
    if not 0 <= seed < 2**32:
        raise AllocationError(f"seed is {seed}: give a number from 0 to 2**32 - 1")
    if capacity is None:
        return
    if not isinstance(capacity, int) or not 0 < capacity <= MOST_BYTES:
        raise AllocationError(
            f"capacity is {capacity!r}: give bytes, a whole number from 1 to {MOST_BYTES}"
        )
    largest = max(buffers, key=lambda b: b.size, default=None)
    if largest is not None and largest.size > capacity:
        raise AllocationError(
            f"buffer {largest.id!r} has {largest.size} bytes, more than the capacity "
            f"{capacity}: give a capacity of at least {largest.size}"
        )


class _Search:
    """One search: its clock, its bounds, and its best packing so far.

    grain: a number of bytes of which all heights are multiples.
    bound: a height that no packing is below.
    """

    def __init__(
        self,
        buffers: tuple[Buffer, ...],
        capacity: int | None,
        seed: int,
        progress: OnProgress | None,
        method: str,
    ) -> None:
        self.buffers, self.capacity, self.seed = buffers, capacity, seed
        self.progress = progress
        self.method = method
        self.shown_s = 0.0
        self.nodes = 0
        self.grain = _grain(buffers)
        ends = (b.offset + b.size for b in buffers if b.offset is not None)
        fixed_top = max(ends, default=0)
        bound = max(live_bytes(buffers), fixed_top)
        self.bound = -(-bound // self.grain) * self.grain
        self.best: tuple[int, ...] | None = None
        self.best_height = 0

    def start_clock(self, seconds: float) -> None:
        """Allow `seconds` of all cores together from this moment, compilation included."""
        self.started_s = time.perf_counter()
        self.end_s = time.process_time() + seconds

    def known(self) -> Allocation | None:
        """The answer if it needs no search: a bound, a clash, or a greedy packing."""
        fixed = _fixed(self.buffers)
        offsets = [b.offset or 0 for b in fixed]
        if fault := next(faults(fixed, offsets), None):
            return self._answer(
                AllocationOutcome.INFEASIBLE, f"of the fixed buffers, {fault}"
            )
        if self.capacity is not None and self.bound > self.capacity:
            return self._answer(AllocationOutcome.INFEASIBLE, self._why_bound())
        for order in ORDERS:
            for best_fit in (False, True):
                if self.best is None or self._has_time():
                    self._offer(greedy(self.buffers, order, best_fit))
        if self.best_height <= self.bound:
            return self.ended("greedy")
        return None

    def any_within(self) -> Allocation:
        """A packing within the capacity, a proof that there is none, or neither."""
        assert self.capacity is not None
        if self.best_height <= self.capacity:
            return self.ended("greedy")
        verdict = self._ask(self.capacity, None)
        if verdict is FitVerdict.NONE:
            self.bound = self.capacity + 1
            return self._answer(
                AllocationOutcome.INFEASIBLE, "the search has ruled out every packing"
            )
        return self.ended("time" if verdict is FitVerdict.OPEN else "search")

    def lowest(self) -> Allocation:
        """The lowest packing found, with more nodes for each question, round by round."""
        limit = 4 * len(self.buffers) + 1000
        while self._is_open():
            self._descend(limit)
            limit *= 4
        if self.capacity is not None and self.bound > self.capacity:
            return self._answer(
                AllocationOutcome.INFEASIBLE, "the search has ruled out every packing"
            )
        return self.ended("search" if self._has_time() else "time")

    def _descend(self, limit: int) -> None:
        """Ask for a packing at the bound, then for ones a part of the way down to it.

        A packing doubles the part, and an open question halves it.
        """
        self._raise_bound(self.bound, limit)
        part = 8
        while part <= 32 and self._is_open():
            steps = (self.best_height - self.bound) // self.grain
            target = self.best_height - max(1, steps // part) * self.grain
            is_open = self._raise_bound(target, limit) is FitVerdict.OPEN
            part = part * 2 if is_open else max(2, part // 2)

    def _raise_bound(self, capacity: int, limit: int) -> FitVerdict:
        """Ask for a packing within `capacity`; if there is none, that is a bound."""
        verdict = self._ask(capacity, limit)
        if verdict is FitVerdict.NONE:
            self.bound = capacity + self.grain
        return verdict

    def _is_open(self) -> bool:
        return self.bound < self.best_height and self._has_time()

    def ended(self, cause: str) -> Allocation:
        """The best packing if it is within the capacity, else that none was found.

        cause: what ended the search: "greedy", "search", "time" or "interrupted".
        """
        if self.capacity is None or self.best_height <= self.capacity:
            how = {"greedy": "found greedily", "search": "found by search"}
            return self._answer(
                AllocationOutcome.PACKED, how.get(cause, f"ended by {cause}")
            )
        return self._answer(
            AllocationOutcome.NOT_FOUND,
            f"{cause} ended the search; the lowest packing has {self.best_height} bytes",
        )

    def _ask(self, capacity: int, most_nodes: int | None) -> FitVerdict:
        """Search for a packing within `capacity`, and remember it if there is one."""
        free = tuple(b for b in self.buffers if b.offset is None and b.size)
        fixed = _fixed(self.buffers)
        columns = columns_of((*free, *fixed))
        search = METHODS[self.method](columns, capacity, self.seed)
        before = self.nodes
        with ThreadPoolExecutor(_num_threads()) as pool:
            for verdict in search.rounds(pool, most_nodes):
                self.nodes = before + search.nodes
                self._show(capacity)
                if verdict is not FitVerdict.OPEN or not self._has_time():
                    break
            else:
                verdict = FitVerdict.OPEN
        if verdict is FitVerdict.FOUND:
            found = dict(zip((b.id for b in free), search.offsets(), strict=True))
            self._offer([found.get(b.id, b.offset or 0) for b in self.buffers])
        return verdict

    def _offer(self, offsets: Sequence[int]) -> None:
        height = height_of(self.buffers, offsets)
        if self.best is None or height < self.best_height:
            self.best, self.best_height = tuple(offsets), height

    def _show(self, capacity: int) -> None:
        now = time.perf_counter()
        if self.progress is not None and now > self.shown_s + 0.2:
            self.shown_s = now
            seconds = now - self.started_s
            self.progress(
                AllocationProgress(seconds, self.nodes, capacity, self.best_height)
            )

    def _has_time(self) -> bool:
        return time.process_time() < self.end_s

    def _why_bound(self) -> str:
        live = live_bytes(self.buffers)
        if self.capacity is not None and live > self.capacity:
            return f"{live} bytes are live at one time, {self.capacity} are allowed"
        return (
            f"no packing is lower than {self.bound} bytes: {live} are live at one time, "
            f"all sizes are multiples of {self.grain}, and fixed buffers stay in place"
        )

    def _answer(self, outcome: AllocationOutcome, reason: str) -> Allocation:
        return Allocation(
            outcome=outcome,
            buffers=self.buffers,
            capacity=self.capacity,
            offsets=self.best if outcome is AllocationOutcome.PACKED else None,
            bound=self.bound,
            reason=reason,
            nodes=self.nodes,
            seconds=time.perf_counter() - self.started_s,
        )


def _fixed(buffers: Sequence[Buffer]) -> list[Buffer]:
    """The buffers with a fixed offset and at least one byte."""
    return [b for b in buffers if b.offset is not None and b.size]


def _grain(buffers: Sequence[Buffer]) -> int:
    """The number of bytes of which every canonical offset and height is a multiple."""
    numbers = [b.size for b in buffers]
    numbers += [b.alignment for b in buffers if b.alignment > 1]
    numbers += [b.offset for b in buffers if b.offset is not None]
    return math.gcd(*numbers) or 1


def _num_threads() -> int:
    return min(2, len(os.sched_getaffinity(0)))
