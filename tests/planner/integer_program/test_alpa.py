"""Alpa's tests of its search, put to our integer program: objective and counts."""

import pytest

import meshwright as mw
from tests.alpa.cases import Counts
from tests.alpa.test_objective import BERT_SQUARE, LINE, SQUARE, objective, reduces
from tests.planner.alpa import cost_of, optimum_of

BATCH = mw.data_parallel("data")
"""On two axes theirs has `force_batch_dim_to_mesh_dim` at 0."""

slow = pytest.mark.slow

THEIRS = [
    ("MLP, data", Counts(12)),
    ("MLP, model", Counts(5)),
    pytest.param("MoE layer", Counts(9, a2a=4), marks=slow),
    ("conv, data", Counts(18)),
    pytest.param("depthwise, model", Counts(1), marks=slow),
    pytest.param("BERT, data", Counts(24), marks=slow),
    pytest.param("BERT, model", Counts(7), marks=slow),
]
CHEAPER = [
    ("conv, model", Counts(1, 2, 2)),
    pytest.param("MoE LM", Counts(32, a2a=4), marks=slow),
    pytest.param("MoE LM, Adam", Counts(26, a2a=4), marks=slow),
]


def known(name, costs):
    """The cost of the best known sharding, given as tactics."""
    kinds = "all_gather", "all_reduce", "all_to_all", "reduce_scatter"
    return sum(objective(name, costs, kind) for kind in kinds)


def check(found, plan, costs, wanted):
    """Assert that the plan costs `wanted`, also when lowered, and that this is a bound."""
    assert found.seconds == pytest.approx(wanted, rel=1e-9)
    assert cost_of(plan, costs) == pytest.approx(wanted, rel=1e-9)
    assert found.bound == pytest.approx(wanted, rel=1e-8)


@pytest.mark.parametrize(("name", "counts"), THEIRS)
def test_it_finds_the_sharding_that_alpa_expects(name, counts):
    found, plan = optimum_of(name, LINE)
    check(found, plan, LINE, known(name, LINE))
    assert Counts.of(plan.counts) == counts


@pytest.mark.parametrize(("name", "counts"), CHEAPER)
def test_it_finds_a_cheaper_sharding_than_alpa_expects(name, counts):
    found, plan = optimum_of(name, LINE)
    assert found.bound <= found.seconds < known(name, LINE)
    assert cost_of(plan, LINE) == pytest.approx(found.seconds, rel=1e-9)
    assert Counts.of(plan.counts) == counts


def test_tied_embedding_costs_what_alpa_says():
    """With its five collectives; tactics need a sixth, for they cut the labels."""
    b, s, h, v = 8, 8, 8, 1024
    found, plan = optimum_of("tied embedding", SQUARE, BATCH)
    hidden, small = (4 * b * s * h / 2, 1), (4 * b * s / 2, 1)
    wanted = reduces(SQUARE, (4 * v * h / 2, 0), hidden, hidden, small, small)
    check(found, plan, SQUARE, wanted)
    assert Counts.of(plan.counts) == Counts(5)


def test_mlp_2d_cuts_all_biases():
    """Half of the sums along "model" are scattered, so that their biases are cut, too."""
    b, h = 256, 32
    found, plan = optimum_of("MLP, 2-D", SQUARE, BATCH)
    hidden = 4 * b * h / 2
    wanted = reduces(SQUARE, *(6 * [(4 * h * h / 2, 0), (4 * h / 2, 0)]))
    wanted += reduces(SQUARE, *(2 * [(hidden, 1)]))
    wanted += 3 * SQUARE.cost("reduce_scatter", hidden, 1)
    wanted += 3 * SQUARE.cost("all_gather", hidden, 1)
    check(found, plan, SQUARE, wanted)
    assert wanted < known("MLP, 2-D", SQUARE)
    assert Counts.of(plan.counts) == Counts(14, 3, 3)


@slow
def test_bert_2d_cuts_vectors():
    """Scales, shifts and biases, for a gather of 512 bytes each where that pays."""
    found, plan = optimum_of("BERT, 2-D", BERT_SQUARE, BATCH)
    assert found.bound <= found.seconds < known("BERT, 2-D", BERT_SQUARE)
    assert cost_of(plan, BERT_SQUARE) < known("BERT, 2-D", BERT_SQUARE)
    assert Counts.of(plan.counts) == Counts(27, 4, 12)
