"""Learned backtracking: the trees, the restarting search, and what counts as a proof."""

import json
from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.allocation.allocation_instances import known_packing
from meshwright.features.allocate import allocate
from meshwright.features.allocate.allocation import AllocationOutcome
from meshwright.features.allocate.canonical.backtracking_trees import (
    FEATURES,
    LEAST_NODES,
    MODEL,
    NUM_FEATURES,
    is_hopeless,
    measure,
    no_trees,
    shipped_trees,
    trees_from,
)
from meshwright.features.allocate.canonical.depth_first import new_state, run
from meshwright.features.allocate.canonical.packing_state import (
    FOUND,
    NONE,
    OPEN,
)
from meshwright.features.allocate.portfolio import RestartingSearch, luby
from meshwright.features.allocate.problem.buffer import as_buffers
from meshwright.features.allocate.problem.packing_check import faults
from meshwright.features.allocate.problem.sections import columns_of


def free_first(buffers):
    return sorted(buffers, key=lambda b: b.offset is not None)


def state_of(num_buffers, seed, nodes):
    buffers, _, capacity = known_packing(num_buffers, seed)
    columns = columns_of(free_first(buffers))
    state = new_state(columns, capacity, "WAT", np.ones(len(columns.size)))
    run(columns, state, no_trees(), nodes)
    return columns, state


def score(stored, features):
    """The sum of the trees of a JSON file, walked in Python."""
    total = 0.0
    for node in stored["root"]:
        while stored["feature"][node] >= 0:
            is_left = features[stored["feature"][node]] <= stored["threshold"][node]
            node = stored["left" if is_left else "right"][node]
        total += stored["value"][node]
    return total


@given(st.integers(0, 99), st.integers(100, 5000))
def test_the_trees_judge_a_frame_by_their_sum(seed, nodes):
    columns, state = state_of(40, seed, nodes)
    top = state.scalars["top"][0]
    if top < 0:
        return
    trees, stored = shipped_trees(), json.loads(MODEL.read_text())
    found = is_hopeless(columns, state, trees, top)
    if state.scalars["nodes"][0] - state.frames["entered"][top] < LEAST_NODES:
        assert not found
    else:
        assert found == (score(stored, state.features) > stored["limit"])


@given(st.integers(0, 99), st.integers(100, 5000))
def test_features_are_shares_and_logarithms(seed, nodes):
    columns, state = state_of(40, seed, nodes)
    if state.scalars["top"][0] < 0:
        return
    measure(columns, state, state.scalars["top"][0])
    by_name = dict(zip(FEATURES, state.features, strict=True))
    assert by_name["log2 of all nodes"] == np.log2(1 + state.scalars["nodes"][0])
    for name, value in by_name.items():
        assert np.isfinite(value)
        if "share" in name and "free" not in name:
            assert 0 <= value <= 1, name


def test_trees_of_other_features_are_refused():
    stored = json.loads(MODEL.read_text())
    stored["features"][0] = "height"
    with pytest.raises(ValueError, match="train them again"):
        trees_from(stored)


def always_hopeless():
    """Trees of one leaf that call every frame hopeless."""
    one, value = np.zeros(1, np.int64), np.ones(1)
    return trees_from(
        {
            "features": list(FEATURES),
            "root": one,
            "feature": -np.ones(1),
            "threshold": np.zeros(1),
            "left": one,
            "right": one,
            "value": value,
            "limit": 0.0,
        }
    )


def test_a_search_that_gave_something_up_says_so():
    columns, state = state_of(60, 3, 0)
    outcome = OPEN
    while outcome == OPEN:
        outcome = run(columns, state, always_hopeless(), 10_000)
    assert outcome == NONE  # though there is a packing
    assert state.scalars["given_up"][0] > 0


def test_the_restarting_search_proves_only_what_it_has_searched_whole():
    boxes = [(0, 2, 3), (1, 3, 3), (2, 4, 3), (0, 4, 2)]
    columns = columns_of(as_buffers(boxes))
    assert RestartingSearch(columns, 7, 0, 20_000).advance(10_000) == NONE
    assert RestartingSearch(columns, 8, 0, 20_000).advance(10_000) == FOUND


def test_the_long_tail_is_solved_by_restarts():
    buffers, _, capacity = known_packing(81, 221)
    columns = columns_of(free_first(buffers))
    for order in ("WAT", "TAW", "TWA"):
        state = new_state(columns, capacity, order, np.ones(len(columns.size)))
        assert run(columns, state, no_trees(), 50_000) == OPEN
    answer = allocate(buffers, capacity, seconds=60)
    assert answer.outcome is AllocationOutcome.PACKED
    assert not list(faults(answer.buffers, answer.offsets, capacity))
    assert answer.nodes < 2_000_000


def test_luby_begins_as_published():
    assert list(islice(luby(), 15)) == [1, 1, 2, 1, 1, 2, 4, 1, 1, 2, 1, 1, 2, 4, 8]


def test_the_number_of_features_is_that_of_their_names():
    assert len(state_of(20, 0, 10)[1].features) == NUM_FEATURES
