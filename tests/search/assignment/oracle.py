"""Small random problems, and their optimum by enumeration."""

import itertools
import math

import numpy as np
from hypothesis import strategies as st

from meshwright.search.assignment import Assignment

WHOLE = st.integers(-5, 20)
ALLOWED = st.one_of(WHOLE, WHOLE, WHOLE, st.just(math.inf))


@st.composite
def problems(draw, limited=None, tree=False):
    """Up to six nodes of up to four choices; whole costs, some forbidden pairs."""
    widths = draw(st.lists(st.integers(1, 4), min_size=1, max_size=6))
    num = len(widths)
    node = st.integers(0, num - 1)
    if tree:
        ends = [(draw(st.integers(0, n - 1)), n) for n in range(1, num)]
    else:
        ends = draw(st.lists(st.tuples(node, node), max_size=8))

    def numbers(kind, size):
        return draw(st.lists(kind, min_size=size, max_size=size))

    edges = [(a, b, numbers(ALLOWED, widths[a] * widths[b])) for a, b in ends]
    is_limited = draw(st.booleans()) if limited is None else limited
    return Assignment.of(
        [numbers(WHOLE, width) for width in widths],
        edges,
        usages=[numbers(st.integers(0, 9), width) for width in widths],
        lives=[sorted(numbers(st.integers(0, 5), 2)) for _ in widths],
        limit=float(draw(st.integers(0, 30))) if is_limited else None,
    )


def least(problem, has_limit=True):
    """The least cost of all combinations that fit; infinite if none does."""
    widths = np.diff(problem.starts)
    return min(
        (
            problem.cost(x)
            for x in itertools.product(*map(range, widths))
            if not has_limit or problem.is_feasible(x)
        ),
        default=math.inf,
    )


def chain(num, width, limit=None, seed=0):
    """A chain with shortcuts, whose nodes live for a while."""
    rng = np.random.default_rng(seed)
    ends = [(max(0, i - step), i) for i in range(1, num) for step in (1, 1 + i % 4)]
    return Assignment.of(
        rng.integers(0, 1000, (num, width)).tolist(),
        [(a, b, rng.integers(0, 1000, (width, width))) for a, b in ends if a != b],
        usages=rng.integers(0, 100, (num, width)).tolist(),
        lives=[(i, i + 10) for i in range(num)],
        limit=limit,
    )
