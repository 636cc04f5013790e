"""`mw.allocate`: packings, proofs, least heights, files and refusals."""

from collections.abc import Sequence
from itertools import product
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import meshwright as mw
from benchmarks.allocation.allocation_instances import known_packing
from meshwright.errors import AllocationError
from meshwright.features.allocate import Allocation, AllocationOutcome, live_bytes
from meshwright.features.allocate.canonical.packing_state import FOUND, NONE
from meshwright.features.allocate.portfolio import FitVerdict, Portfolio, SkylineSearch
from meshwright.features.allocate.problem.packing_check import faults
from meshwright.features.allocate.problem.sections import columns_of
from meshwright.features.allocate.problem.table import format_buffers, parse_buffers


def least_height(buffers: Sequence[mw.Buffer]) -> int:
    """The least height, by trying all offsets up to the sum of sizes and alignments."""
    most = sum(b.size + b.alignment for b in buffers) + 4
    for height in range(most + 1):
        choices = [
            [o for o in range(height - b.size + 1) if b.offset in (None, o)]
            for b in buffers
        ]
        for offsets in product(*choices):
            if not any(True for _ in faults(buffers, offsets)):
                return height
    raise AssertionError("no packing")


@st.composite
def small_problems(draw: st.DrawFn) -> tuple[mw.Buffer, ...]:
    buffers: list[mw.Buffer] = []
    for index in range(draw(st.integers(1, 4))):
        lower = draw(st.integers(0, 4))
        length = draw(st.integers(1, 4))
        gaps = ((lower + 1, lower + 2),) if length > 2 and draw(st.booleans()) else ()
        fixed = index == 0 and draw(st.booleans())
        align = draw(st.sampled_from([1, 1, 2]))
        buffers.append(
            mw.Buffer(
                f"b{index}", lower, lower + length, draw(st.integers(0, 3)), align,
                2 if fixed else None, gaps,
            )
        )  # fmt: skip
    return tuple(buffers)


@settings(max_examples=60, deadline=None)
@given(small_problems())
def test_the_least_height_is_that_of_enumeration(
    buffers: tuple[mw.Buffer, ...],
) -> None:
    answer = mw.allocate(buffers, minimize=True, seconds=120)
    assert answer.height == least_height(buffers)
    assert answer.is_optimal


@settings(max_examples=60, deadline=None)
@given(small_problems(), st.integers(1, 12))
def test_the_canonical_search_alone_decides_as_enumeration_does(
    buffers: tuple[mw.Buffer, ...], capacity: int
) -> None:
    fixed = [b for b in buffers if b.offset is not None]
    free = [b for b in buffers if b.offset is None and b.size]
    if not free or any((b.offset or 0) + b.size > capacity for b in fixed):
        return
    portfolio = Portfolio(columns_of((*free, *fixed)), capacity, seed=0)
    verdict = portfolio.run_all(10_000)
    needed = least_height((*free, *fixed))
    assert verdict is (FitVerdict.FOUND if needed <= capacity else FitVerdict.NONE)
    if verdict is FitVerdict.FOUND:
        offsets = [*portfolio.offsets(), *(b.offset or 0 for b in fixed)]
        assert not list(faults((*free, *fixed), offsets, capacity))


@settings(max_examples=100, deadline=None)
@given(small_problems(), st.integers(1, 12), st.integers(0, 3))
def test_the_skyline_search_alone_decides_as_enumeration_does(
    buffers: tuple[mw.Buffer, ...], capacity: int, seed: int
) -> None:
    fixed = [b for b in buffers if b.offset is not None]
    free = [b for b in buffers if b.offset is None and b.size]
    if not free or any((b.offset or 0) + b.size > capacity for b in fixed):
        return
    search = SkylineSearch(columns_of((*free, *fixed)), capacity, seed)
    outcome = search.advance(10_000)
    needed = least_height((*free, *fixed))
    assert outcome == (FOUND if needed <= capacity else NONE)
    if outcome == FOUND:
        offsets = [*search.state.offset.tolist(), *(b.offset or 0 for b in fixed)]
        assert not list(faults((*free, *fixed), offsets, capacity))


@pytest.mark.parametrize(("num_buffers", "seed"), [(68, 50), (92, 75), (116, 100)])
def test_the_skyline_search_packs_problems_with_hardly_a_free_byte(
    num_buffers: int, seed: int
) -> None:
    buffers, _, capacity = known_packing(num_buffers, seed)
    free = [b for b in buffers if b.offset is None and b.size]
    fixed = [b for b in buffers if b.offset is not None]
    search = SkylineSearch(columns_of((*free, *fixed)), capacity, 0)
    assert search.advance(50_000) == FOUND
    offsets = [*search.state.offset.tolist(), *(b.offset or 0 for b in fixed)]
    assert not list(faults((*free, *fixed), offsets, capacity))


@pytest.mark.parametrize("seed", range(4))
def test_generated_problems_are_packed_into_their_known_capacity(seed: int) -> None:
    buffers, offsets, capacity = known_packing(24, seed)
    assert not list(faults(buffers, offsets, capacity))
    answer = mw.allocate(buffers, capacity, seconds=30)
    assert answer.outcome is AllocationOutcome.PACKED
    assert not list(faults(buffers, answer.offsets or (), capacity))


def test_less_than_the_live_bytes_is_proven_infeasible_without_search() -> None:
    buffers, _, _ = known_packing(40, 1)
    answer = mw.allocate(buffers, live_bytes(buffers) - 1)
    assert answer.outcome is AllocationOutcome.INFEASIBLE
    assert answer.nodes == 0
    assert "live at one time" in answer.reason
    assert len(str(answer).splitlines()) <= 10


def test_equal_seeds_give_equal_offsets() -> None:
    buffers, _, capacity = known_packing(30, 5)
    first, second = (mw.allocate(buffers, capacity, seed=3) for _ in range(2))
    assert first.offsets == second.offsets


def test_fixed_buffers_that_overlap_are_infeasible() -> None:
    a, b = mw.Buffer("a", 0, 2, 4, offset=0), mw.Buffer("b", 1, 3, 4, offset=2)
    assert mw.allocate([a, b], 100).outcome is AllocationOutcome.INFEASIBLE


def test_saved_answers_read_back_equal_and_pictures_parse(tmp_path) -> None:
    buffers = [
        mw.Buffer("a<&", 0, 6, 4, 2, gaps=((2, 3),)),
        mw.Buffer("b", 1, 3, 4, offset=8),
    ]
    answer = mw.allocate(buffers, 16)
    assert Allocation.from_json(answer.to_json()) == answer
    assert len(ElementTree.fromstring(answer.svg())) == 5
    assert "svg" in answer.report(tmp_path / "page.html").read_text()
    placed = parse_buffers(answer.to_csv())
    assert [b.offset for b in placed] == list(answer.offsets or ())
    assert parse_buffers(format_buffers(buffers)) == tuple(buffers)


def test_no_buffers_need_no_memory() -> None:
    assert mw.allocate([], 8).height == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("id,lower,upper\n", "no column size"),
        ("id,lower,upper,sise\n", "did you mean 'size'"),
        ("id,lower,upper,size\na,0,1", "has 3 fields"),
        ("id,lower,upper,size\na,0,1,x", "line 2: size is 'x'"),
        ("id,lower,upper,size\na,0,1,-4", "size -4"),
        ("id,lower,upper,size\na,3,3,4", "upper must be greater"),
        ("id,lower,upper,size\na,0,1,4\na,0,1,4", "two buffers have the id 'a'"),
        ("id,lower,upper,size,gaps\na,0,9,4,5-3", "gaps must lie within"),
        ("id,lower,upper,size,gaps\na,0,9,4,3-5@0:2", "not supported"),
        ("id,lower,upper,size,alignment\na,0,9,4,0", "alignment 0"),
        ("id,lower,upper,size,alignment,offset\na,0,9,4,4,2", "multiple"),
    ],
)
def test_bad_tables_are_refused_with_the_line_and_the_reason(
    text: str, message: str
) -> None:
    with pytest.raises(AllocationError, match=message):
        parse_buffers(text)


def test_a_capacity_below_the_largest_buffer_is_refused() -> None:
    with pytest.raises(
        AllocationError, match="'1' has 9 bytes, more than the capacity 8"
    ):
        mw.allocate([(0, 1, 4), (1, 2, 9)], 8)
