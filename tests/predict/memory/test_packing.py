"""Heap sizes of buffers that come and go, by laws and by hand."""

from hypothesis import given
from hypothesis import strategies as st

from meshwright.predict.memory.packing import packed_bytes, packed_in_time
from meshwright.program.analysis.live_ranges import BufferInterval

BLOCKS = st.lists(
    st.tuples(st.integers(1, 50), st.integers(0, 12), st.integers(0, 5)).map(
        lambda t: BufferInterval(t[0], t[1], t[1] + t[2])
    ),
    max_size=20,
)


@given(BLOCKS)
def test_a_heap_lies_between_the_peak_of_live_bytes_and_their_total(blocks):
    most = max(
        (sum(b.size for b in blocks if b.start <= t <= b.end) for t in range(20)),
        default=0,
    )
    for pack in (packed_bytes, packed_in_time):
        assert most <= pack(blocks) <= sum(b.size for b in blocks)


@given(BLOCKS)
def test_packed_in_time_buffers_of_one_size_leave_no_gaps(blocks):
    same = [b._replace(size=3) for b in blocks]
    most = max(sum(3 for b in same if b.start <= t <= b.end) for t in range(20))
    assert packed_in_time(same) == most


def test_packed_in_time_a_buffer_that_stays_fragments_the_space_below_it():
    blocks = [BufferInterval(4, 0, 1), BufferInterval(1, 1, 3), BufferInterval(5, 2, 3)]
    assert packed_bytes(blocks) == 6
    assert packed_in_time(blocks) == 10


def test_packed_in_time_a_buffer_takes_the_smallest_gap_that_holds_it():
    first = [
        BufferInterval(5, 0, 0),
        BufferInterval(1, 0, 2),
        BufferInterval(3, 0, 0),
        BufferInterval(1, 0, 2),
    ]
    assert (
        packed_in_time([*first, BufferInterval(3, 1, 2), BufferInterval(5, 2, 2)]) == 10
    )
