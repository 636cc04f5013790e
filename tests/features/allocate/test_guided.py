"""The search that CP-SAT guides: packings, proofs, conflicts, and its choice by name."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import meshwright as mw
from benchmarks.allocation.allocation_instances import known_packing
from meshwright.errors import AllocationError
from meshwright.features.allocate import AllocationOutcome
from meshwright.features.allocate.canonical.packing_state import FitVerdict
from meshwright.features.allocate.guided import guided
from meshwright.features.allocate.guided.candidates import (
    Candidates,
    independent_parts,
)
from meshwright.features.allocate.guided.guided import GuidedSearch
from meshwright.features.allocate.guided.offset_solver import (
    LowestOffset,
    OffsetSolver,
)
from meshwright.features.allocate.problem.packing_check import faults
from meshwright.features.allocate.problem.sections import columns_of
from tests.features.allocate.test_allocate import least_height, small_problems


class SilentSolver(OffsetSolver):
    """A solver that excludes nothing when asked, so that only the search decides."""

    def lowest(self, buffer: int) -> LowestOffset:
        return LowestOffset(0)


@pytest.mark.parametrize("solver", [OffsetSolver, SilentSolver])
@settings(max_examples=40, deadline=None)
@given(buffers=small_problems(), capacity=st.integers(1, 12), seed=st.integers(0, 3))
def test_run_to_its_end_it_decides_as_enumeration_does(
    solver, buffers: tuple[mw.Buffer, ...], capacity: int, seed: int
) -> None:
    fixed = [b for b in buffers if b.offset is not None and b.size]
    free = [b for b in buffers if b.offset is None and b.size]
    if not free or any((b.offset or 0) + b.size > capacity for b in fixed):
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(guided, "OffsetSolver", solver)
        search = GuidedSearch(columns_of((*free, *fixed)), capacity, seed)
        verdict = list(search.rounds(None, 10_000))[-1]
    needed = least_height((*free, *fixed))
    assert verdict is (FitVerdict.FOUND if needed <= capacity else FitVerdict.NONE)
    if verdict is FitVerdict.FOUND:
        offsets = [*search.offsets(), *(b.offset or 0 for b in fixed)]
        assert not list(faults((*free, *fixed), offsets, capacity))


def test_the_solver_names_only_the_placements_in_conflict() -> None:
    # c needs 4 of 6 bytes beside a; d is live with nobody but b
    columns = columns_of(
        [
            mw.Buffer("a", 0, 2, 2),
            mw.Buffer("b", 1, 3, 1),
            mw.Buffer("c", 0, 1, 4),
            mw.Buffer("d", 2, 4, 1),
        ]
    )
    solver = OffsetSolver(columns, range(4), 6, 0)
    solver.limit(3, 2, 2)
    solver.limit(1, 0, 0)
    solver.limit(0, 1, 1)
    assert solver.lowest(2).is_refuted
    assert solver.conflict() == {0}
    solver.release(0)
    assert not solver.lowest(2).is_refuted


def test_a_search_that_backtracks_counts_equally_for_equal_seeds() -> None:
    buffers, _, capacity = known_packing(80, 1000)
    free = [b for b in buffers if b.offset is None and b.size]
    fixed = [b for b in buffers if b.offset is not None]
    counts: list[tuple[int, int, int]] = []
    for _ in range(2):
        search = GuidedSearch(columns_of((*free, *fixed)), capacity, 0)
        assert set(search.rounds(None, 15)) == {FitVerdict.OPEN}
        counts.append((search.nodes, search.minor, search.major))
    assert counts[0] == counts[1]
    assert counts[0][1] > 0


def test_buffers_that_never_meet_are_independent_parts() -> None:
    columns = columns_of(
        [mw.Buffer(n, *b) for n, *b in [("a", 0, 2, 4), ("b", 5, 7, 4), ("c", 1, 3, 4)]]
    )
    assert independent_parts(columns) == [[0, 2], [1]]


def test_candidates_are_of_the_most_contended_phase_with_causes_first() -> None:
    # 0 to 3 are live together with 10 bytes, 4 is alone with 1 byte
    spans = [(0, 9, 1), (1, 2, 5), (1, 4, 3), (1, 3, 1), (20, 90, 1)]
    columns = columns_of([mw.Buffer(str(i), *b) for i, b in enumerate(spans)])
    candidates = Candidates(columns, 10)
    everything = range(5)
    # longest lifetime: 0, largest size: 1, largest area: 0 and 2 with 9
    assert list(candidates.of(everything, ())) == [0, 1]
    candidates.note_cause(3)
    assert list(candidates.of(everything, {1})) == [3, 0]
    assert list(candidates.of([4], ())) == [4]


def test_it_is_chosen_by_name_and_proves_what_is_infeasible() -> None:
    # 6 bytes are live, but the second buffer cannot lie at offset 3
    buffers = [mw.Buffer(name, 0, 2, 3, alignment=2) for name in "ab"]
    answer = mw.allocate(buffers, 6, method="guided")
    assert answer.outcome is AllocationOutcome.INFEASIBLE
    assert "ruled out" in answer.reason
    buffers, _, capacity = known_packing(24, 1)
    assert mw.allocate(buffers, capacity, method="guided").height is not None


def test_an_unknown_method_is_refused_with_the_names_of_all() -> None:
    with pytest.raises(AllocationError, match=r"'guide'.*one of portfolio, guided"):
        mw.allocate([(0, 1, 4)], 8, method="guide")
