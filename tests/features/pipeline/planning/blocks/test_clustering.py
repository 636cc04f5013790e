"""Clustering of blocks into layers, against all cuts."""

from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.errors import PlanError
from meshwright.features.pipeline.planning.blocks.clustering import cluster


def rank(flops, incoming, starts):
    """Largest and total bytes into layers, and squares of their operations."""
    ends = (*starts[1:], len(flops))
    sizes = [sum(flops[a:b]) for a, b in zip(starts, ends, strict=True)]
    inner = [incoming[s] for s in starts[1:]]
    return max(inner, default=0), sum(inner), sum(size**2 for size in sizes)


def all_cuts(flops, num_layers, most):
    for inner in combinations(range(1, len(flops)), num_layers - 1):
        edges = (0, *inner, len(flops))
        if all(sum(flops[a:b]) <= most * (1 + 1e-12) for a, b in pairwise(edges)):
            yield edges[:-1]


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(0, 5)), min_size=1, max_size=9),
    st.integers(1, 5),
)
def test_layers_are_the_best_of_all_balanced_cuts(blocks, num_layers):
    flops, incoming = map(list, zip(*blocks, strict=True))
    num_layers = min(num_layers, len(flops))
    most = max(1.5 * sum(flops) / num_layers, max(flops))
    every = [rank(flops, incoming, cut) for cut in all_cuts(flops, num_layers, most)]
    found = cluster(flops, incoming, num_layers)
    assert len(found) == num_layers
    if every:
        assert rank(flops, incoming, found) == min(every)


def test_equal_layers_are_cut_where_little_crosses():
    flops = [1.0, 4.0, 1.0] * 4
    incoming = [0, 90, 80] + [10, 90, 80] * 3
    assert cluster(flops, incoming, 4) == (0, 3, 6, 9)


def test_more_layers_than_blocks_are_refused():
    with pytest.raises(PlanError, match="4 layers of 3 blocks; wanted 1 to 3"):
        cluster([1, 1, 1], [0, 0, 0], 4)
