"""Limits on the iterations of a `while`, against loops that are run."""

import pytest
from jax import lax

from meshwright.program.analysis.trip_counts import TripLimit, trip_limit
from meshwright.program.capture import capture

_COMPARISONS = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "!=": lambda a, b: a != b,
}
_COUNTERS = (
    (0, 1, 10), (0, 3, 10), (1, 3, 10), (9, -2, 0), (9, -3, 0), (5, -1, 5), (7, 1, 3)
)  # fmt: skip
"""Start, step and end of counters."""


def limit_of(cond, body, init):
    (loop,) = [
        op
        for op in capture(
            lambda x: lax.while_loop(cond, body, (*init, x)), (0.5,)
        ).program.ops
        if op.kind == "while"
    ]
    return trip_limit(loop)


def runs(compare, start, step, end):
    count = 0
    while compare(start, end) and count < 100:
        start, count = start + step, count + 1
    return count


@pytest.mark.parametrize("name", _COMPARISONS)
def test_counters_are_exact(name):
    compare = _COMPARISONS[name]
    for start, step, end in _COUNTERS:
        wanted = runs(compare, start, step, end)
        for body in (
            lambda c, step=step: (c[0] + step, c[1]),
            lambda c, step=step: (c[0] - -step, c[1]),
            lambda c, step=step: (step + c[0], c[1]),
        ):
            found = limit_of(lambda c, end=end: compare(c[0], end), body, (start,))
            assert found == (None if wanted == 100 else TripLimit(wanted, True))


def test_a_limit_beside_another_condition_is_not_exact():
    found = limit_of(
        lambda c: (c[0] < 30) & (c[1] > 0), lambda c: (c[0] + 1, c[1]), (0,)
    )
    assert found == TripLimit(30, is_exact=False)
    both = limit_of(
        lambda c: (c[0] < 30) & (c[0] < 20), lambda c: (c[0] + 1, c[1]), (0,)
    )
    assert both == TripLimit(20, is_exact=True)


def test_a_limit_that_the_loop_carries_unchanged_is_known():
    found = limit_of(lambda c: c[1] > c[0], lambda c: (c[0] + 2, c[1], c[2]), (0, 7))
    assert found == TripLimit(4, is_exact=True)


@pytest.mark.parametrize(
    "body",
    [
        lambda c: (c[0] * 2, c[1]),
        lambda c: (c[0] + c[1].astype(int), c[1]),
        lambda c: (c[0], c[1]),
    ],
    ids=["doubled", "by data", "constant"],
)
def test_other_counters_are_unknown(body):
    assert limit_of(lambda c: c[0] < 10, body, (1,)) is None


def test_an_alternative_sets_no_limit():
    assert (
        limit_of(lambda c: (c[0] < 10) | (c[1] > 0), lambda c: (c[0] + 1, c[1]), (0,))
        is None
    )
