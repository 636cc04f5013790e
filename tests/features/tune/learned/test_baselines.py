"""Baselines on graphs whose best ranking is known by hand."""

import sys

import numpy as np
import pytest

from meshwright.errors import LearnedError
from meshwright.features.tune.learned.baselines import (
    boosted_trees,
    copy_scores,
    default_scores,
    plain_scorers,
    random_scores,
)
from meshwright.features.tune.learned.features import layout_features
from meshwright.features.tune.learned.hlo.opcodes import OPCODES
from meshwright.features.tune.learned.hlo_graph import HloGraph
from meshwright.features.tune.learned.measured_graph import MeasuredGraph
from meshwright.learn.ranking import Ranking
from tests.features.tune.learned.synthetic import kernel, layout_program

NOTHING = layout_features([])


def two_products():
    """x @ w, then (x @ w) @ v, then tanh of it: f32[4,8] [8,16] [16,2] -> [4,2]."""
    kinds = ["parameter", "parameter", "dot", "parameter", "dot", "tanh"]
    shapes = [(4, 8), (8, 16), (4, 16), (16, 2), (4, 2), (4, 2)]
    features = np.zeros((6, 140), np.float32)
    features[:, 21:23] = shapes
    features[:, 28] = np.prod(shapes, axis=1)
    features[:, 134:136] = (1, 0)
    edges = np.array([(2, 0), (2, 1), (4, 2), (4, 3), (5, 4)])
    opcodes = np.array([OPCODES[kind] for kind in kinds], np.uint8)
    return HloGraph(features, opcodes, edges, np.array([0, 6]))


def copied(first, second):
    """Elements copied if the two products have these layouts."""
    rows = np.stack([first, second])[None]
    graph = two_products()
    return copy_scores(MeasuredGraph("it", graph, rows, np.array([2, 4]), np.ones(1)))[
        0
    ]


def test_copies_are_counted_where_layouts_disagree():
    turned, kept = (0, 1), (1, 0)
    assert copied(NOTHING, NOTHING) == 0
    assert copied(layout_features([kept] * 3), NOTHING) == 0
    assert copied(layout_features([(), turned]), NOTHING) == 4 * 8  # x
    assert copied(layout_features([(), turned, turned]), NOTHING) == 4 * 8 + 8 * 16
    # The first product's result is turned, and the second one wants it as it was.
    assert copied(layout_features([turned]), NOTHING) == 4 * 16
    assert copied(layout_features([turned]), layout_features([(), turned])) == 0
    # The second product's result is turned, and tanh wants it as it was.
    assert copied(NOTHING, layout_features([turned])) == 4 * 2


def test_copies_rank_nothing_for_tilings():
    with pytest.raises(LearnedError, match="for layouts only"):
        copy_scores(kernel())


def test_the_default_comes_first_and_the_rest_is_tied():
    scores = default_scores(layout_program(12, 5))
    assert scores.tolist() == [0, 1, 1, 1, 1]


def test_random_orders_depend_on_the_seed_only():
    measured = kernel()
    one, other = random_scores(measured, 1), random_scores(measured, 2)
    assert (one == random_scores(measured, 1)).all()
    assert (one != other).any()


def test_each_collection_has_its_baselines():
    tile, layout = kernel(), layout_program()
    assert list(plain_scorers(tile.collection, 0)) == ["random", "default"]
    scorers = plain_scorers(layout.collection, 0)
    assert list(scorers) == ["random", "default", "copies"]
    for scorer in scorers.values():
        assert scorer(layout).shape == (layout.num_configs,)


@pytest.mark.parametrize("make", [kernel, layout_program])
def test_boosted_trees_rank_an_unseen_graph(make):
    pytest.importorskip("lightgbm")
    trees = boosted_trees([make(configs=40, seed=s) for s in range(6)], seed=0)
    unseen = make(configs=40, seed=9)
    assert Ranking.of(trees(unseen), unseen.targets).tau > 0.5


def test_without_lightgbm_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    with pytest.raises(LearnedError, match=r"meshwright\[learned\]"):
        boosted_trees([kernel()], seed=0)
