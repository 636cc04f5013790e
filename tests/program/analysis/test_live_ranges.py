"""Live ranges and live bytes, against enumeration."""

from hypothesis import given
from hypothesis import strategies as st

from meshwright.program.analysis.live_ranges import (
    BufferInterval,
    live_bytes,
    live_ranges,
)
from meshwright.program.ir import Value


@st.composite
def sequences(draw):
    """Steps that each write one new value and read some that were there before."""
    values = [Value((1,), "float32")]
    steps = []
    for _ in range(draw(st.integers(0, 8))):
        reads = draw(st.lists(st.sampled_from(values), max_size=3))
        values.append(Value((1,), "float32"))
        steps.append((tuple(reads), (values[-1],)))
    return steps


@given(sequences())
def test_ranges_equal_enumeration(steps):
    ranges = live_ranges(steps)
    assert ranges.num_steps == len(steps)
    for index, (_, writes) in enumerate(steps):
        for value in writes:
            readers = [i for i, (reads, _) in enumerate(steps) if value in reads]
            assert ranges.definitions[value] == index
            assert ranges.first_uses.get(value) == min(readers, default=None)
            assert ranges.last_uses.get(value) == max(readers, default=None)
            assert ranges.end(value) == max(readers, default=index)


INTERVALS = st.builds(
    lambda size, start, length: BufferInterval(size, start, start + length),
    st.integers(0, 99),
    st.integers(0, 9),
    st.integers(0, 9),
)


@given(st.lists(INTERVALS), st.integers(10, 15))
def test_live_bytes_equal_enumeration(intervals, num_steps):
    assert live_bytes(intervals, num_steps) == [
        sum(size for size, start, end in intervals if start <= step <= end)
        for step in range(num_steps)
    ]
