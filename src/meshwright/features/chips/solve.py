"""All searches for a partition over chips, one after another, within a time limit."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice

import numpy as np

from meshwright.errors import ChipsError
from meshwright.features.chips.chip_partition import ChipPartition
from meshwright.features.chips.graph.chip_graph import ChipEdge, ChipGraph, ChipOp
from meshwright.features.chips.methods.contiguous import best_cut
from meshwright.features.chips.methods.exact import solve_exactly
from meshwright.features.chips.methods.moves import anneal
from meshwright.features.chips.problem.chip_module import ChipModule
from meshwright.features.chips.problem.chip_problem import ChipProblem
from meshwright.search import Budget
from meshwright.search.arrays import Ints

_EXACT_SIZE = 1000
"""Largest number of ops times chips for which CP-SAT is run."""

_EXACT_SHARE = 0.4
"""Share of the remaining time that CP-SAT gets."""

_SAMPLES = 50
"""Number of the policy's proposals; with so many it is compared with annealing."""


@dataclass(frozen=True, slots=True)
class ChipProgress:
    """The progress of a search: seconds so far, the method, and the best bottleneck.

    evaluations: number of partitions whose bottleneck was computed.
    """

    seconds: float
    method: str
    evaluations: int
    bottleneck_s: float


type OnChipProgress = Callable[[ChipProgress], None]


type Proposer = Callable[[ChipProblem, Ints, int], Iterator[Ints]]
"""A function from a problem, a valid partition and a seed to an endless stream.

The stream yields valid partitions.
"""


def partition_graph(
    graph: ChipGraph,
    module: ChipModule,
    *,
    seconds: float = 60.0,
    seed: int = 0,
    policy: Proposer | None = None,
    progress: OnChipProgress | None = None,
) -> ChipPartition:
    """Search for the partition of a graph over chips with the shortest bottleneck.

    The search takes at most about `seconds` of all cores together, compilation of its loops
    included; Ctrl-C ends it with the best partition so far. Raises `ChipsError` if no
    partition was found that fits into memory.
    policy: function that proposes partitions, besides the other methods.
    """
    if not (seconds > 0 and math.isfinite(seconds)):
        raise ChipsError(f"seconds is {seconds}: give a positive number")
    problem = ChipProblem(graph, module)
    run = _Run(problem, seconds, progress)
    _compile_loops()
    with suppress(KeyboardInterrupt):
        run.all(policy, seed)
    return run.answer()


def _compile_loops() -> None:
    """Compile the inner loops, or load them from the cache: some 8 s on first use."""
    graph = ChipGraph.of([ChipOp("a", 1.0), ChipOp("b", 1.0)], [ChipEdge(0, 1, 1)])
    problem = ChipProblem(graph, ChipModule(2, 1.0, 1.0))
    best_cut(problem)
    problem.repaired(np.zeros(2, np.int64))


class _Run:
    """One search for a partition under way: its clock and its best partition."""

    def __init__(
        self, problem: ChipProblem, seconds: float, progress: OnChipProgress | None
    ) -> None:
        self.problem, self.progress = problem, progress
        self.started_s = time.perf_counter()
        self.end_s = time.process_time() + seconds
        self.best: Ints | None = None
        self.best_s = math.inf
        self.bound_s = problem.bound_s
        self.found_by = ""
        self.evaluations = 0

    def all(self, policy: Proposer | None, seed: int) -> None:
        """Run all methods: cuts, policy, CP-SAT for small problems, then annealing."""
        self.offer(np.zeros(self.problem.graph.num_ops, np.int64), "one chip")
        self.offer(best_cut(self.problem), "the dynamic program over cuts")
        if policy is not None and self.is_open() and self.best is not None:
            proposals = policy(self.problem, self.best, seed)
            for chips in islice(proposals, _SAMPLES):
                self.offer(chips, "the policy")
                if not self.is_open():
                    break
        size = self.problem.graph.num_ops * self.problem.module.num_chips
        if size <= _EXACT_SIZE and self.is_open() and self.best is not None:
            self._exact(seed)
        if self.is_open():
            self._anneal(seed)

    def _exact(self, seed: int) -> None:
        assert self.best is not None
        left_s = _EXACT_SHARE * (self.end_s - time.process_time())
        answer = solve_exactly(self.problem, self.best, left_s, seed)
        self.bound_s = max(self.bound_s, answer.bound_s)
        self.offer(answer.chips, "CP-SAT")

    def _anneal(self, seed: int) -> None:
        begin = self.best
        if begin is None:  # nothing fits yet: chips of equal weights
            begin = self.problem.repaired(self.problem.even_weights())
        left_s = max(self.end_s - time.process_time(), 1e-3)
        chips, result = anneal(self.problem, begin, seed, Budget(seconds=left_s))
        self.evaluations += result.evaluations - 1
        self.offer(chips, "annealing")

    def is_open(self) -> bool:
        """Whether time is left, and the best partition is not proven to be optimal."""
        is_proven = self.best_s <= self.bound_s * (1 + _EXACT)
        return time.process_time() < self.end_s and not is_proven

    def offer(self, chips: Ints | None, method: str) -> None:
        """Compute the bottleneck of a valid partition; keep it if it is the best."""
        if chips is None:
            return
        self.evaluations += 1
        cost = self.problem.load(chips).cost
        if cost < self.best_s:
            self.best, self.best_s, self.found_by = chips, cost, method
        if self.progress is not None:
            spent_s = time.perf_counter() - self.started_s
            shown = ChipProgress(spent_s, method, self.evaluations, self.best_s)
            self.progress(shown)

    def answer(self) -> ChipPartition:
        """The best partition found; `ChipsError` if none fits into memory."""
        problem = self.problem
        if self.best is None:
            raise ChipsError(
                f"no partition onto {problem.module.num_chips} chips was found in which "
                f"each fits into {problem.module.memory_bytes:.0f} bytes: give more chips, "
                "more memory, more seconds, or a smaller batch"
            )
        return ChipPartition(
            problem.graph,
            problem.module,
            tuple(self.best.tolist()),
            self.bound_s,
            self.best_s <= self.bound_s * (1 + _EXACT),
            self.found_by,
            self.evaluations,
            time.perf_counter() - self.started_s,
        )


_EXACT = 2e-6
"""Relative difference of bottlenecks that counts as none.

CP-SAT counts time in millionths of the first bottleneck.
"""
