"""The learned prior: it orders cuts and rules none out, whatever its weights are."""

import json
import math
import random

import numpy as np
import pytest

from benchmarks.search import learned_prior as judged
from benchmarks.train import train_prior as training
from benchmarks.train.train_prior import kinds_prior
from meshwright.errors import SearchError
from meshwright.machine import Mesh
from meshwright.planner.tree.cut_problem import StateCost
from meshwright.planner.tree.features import FEATURES, KIND_FEATURES, CutFeatures, Phase
from meshwright.planner.tree.prior import (
    SHIPPED,
    learned_prior,
    load_weights,
    prior_of,
)
from meshwright.planner.tree.tree_search import (
    make_problem,
    search_cuts,
)
from meshwright.search import Budget, Mcts, search
from tests.planner.programs import LARGE, MESH, PAIR, space_of

SHAPE = len(Phase), len(FEATURES)


@pytest.fixture(scope="module")
def problem():
    return make_problem(space_of(LARGE), Mesh(MESH))


def cut_of(problem, path, dim, axis):
    """The cut of an input by its path."""
    work = problem.work
    node = work.graph.input_nodes[list(work.paths).index(path)]
    group = problem.reduced_graph.class_of[node.index]
    return next(
        c for c in problem.cuts if (c.group, c.dim, c.axis) == (group, dim, axis)
    )


@pytest.fixture(scope="module")
def batch(problem):
    return cut_of(problem, "x", 0, "data")


@pytest.fixture(scope="module")
def weight(problem):
    return cut_of(problem, "params.0.up", 1, "data")


@pytest.mark.parametrize("scale", [0.0, 1.0, -1.0, 1e3, -1e3])
def test_every_legal_cut_has_a_weight_above_zero(problem, scale):
    prior = prior_of(problem, scale * load_weights(SHIPPED))
    rng = random.Random(0)
    for _ in range(20):
        state = problem.start()
        while cuts := problem.actions(state):
            for axis in ("data", "model", None):
                some = [c for c in cuts if axis in (c.axis, None)]
                weights = prior(state, some)
                assert len(weights) == len(some)
                assert all(0 < w < math.inf for w in weights)
            state = problem.apply(state, rng.choice(cuts))


@pytest.mark.parametrize("scale", [0.0, 1.0, -1.0])
def test_a_complete_search_finds_the_same_best_with_any_weights(scale):
    problem = make_problem(space_of(PAIR), Mesh({"data": 4, "model": 2}))
    prior = prior_of(problem, scale * load_weights(SHIPPED))
    budget = Budget(trials=20_000)
    found = search(problem, Mcts(0, prior_fn=prior), budget)
    plain = search(problem, Mcts(0), budget)
    assert found.is_complete
    assert plain.is_complete
    assert found.cost == plain.cost


def test_with_zero_weights_all_kinds_weigh_the_same(problem, batch):
    for state in (problem.start(), problem.apply(problem.start(), batch)):
        cuts = problem.actions(state)
        found = prior_of(problem, np.zeros(SHAPE))(state, cuts)
        assert np.allclose(found, kinds_prior(problem)(state, cuts))


def test_without_prices_all_kinds_weigh_the_same(problem, monkeypatch):
    monkeypatch.setattr(problem, "measure", lambda state: StateCost(math.inf, 1.0))
    start = problem.start()
    cuts = problem.actions(start)
    assert np.allclose(
        learned_prior(problem)(start, cuts), kinds_prior(problem)(start, cuts)
    )


def test_a_state_without_legal_cuts_has_no_weights(problem):
    assert list(learned_prior(problem)(problem.start(), [])) == []


def test_weights_of_a_state_do_not_depend_on_earlier_calls(problem, batch, weight):
    state = problem.follow([batch])
    cuts = problem.actions(state)
    fresh = learned_prior(problem)(state, cuts)
    used = learned_prior(problem)
    for other in (problem.start(), problem.follow([weight])):
        used(other, problem.actions(other))
    assert used(state, cuts) == fresh


def test_the_batch_comes_before_a_weight(problem, batch, weight):
    start = problem.start()
    cuts = [c for c in problem.actions(start) if c.axis == "data"]
    weights = dict(zip(cuts, learned_prior(problem)(start, cuts), strict=True))
    assert max(weights, key=weights.get) == batch
    assert weights[batch] > 5 * weights[weight]


def test_the_phase_of_an_axis_follows_from_the_inputs_that_it_cuts(
    problem, batch, weight
):
    outlook = CutFeatures(problem)
    start = problem.start()
    cut = problem.apply(start, batch)
    assert outlook.phase(start, "data") is Phase.NOTHING
    assert outlook.phase(cut, "data") is Phase.DATA
    assert outlook.phase(cut, "model") is Phase.NOTHING
    assert outlook.phase(problem.apply(start, weight), "data") is Phase.STATE


def test_features_compare_the_state_after_the_cut_with_that_before(problem, batch):
    outlook, start = CutFeatures(problem), problem.start()
    values = dict(
        zip(
            FEATURES,
            outlook.along(start, "data")[Phase.NOTHING][
                list(outlook.rows["data"]).index(outlook.number[batch])
            ],
            strict=True,
        )
    )
    before, after = (
        problem.measure(start),
        problem.measure(problem.apply(start, batch)),
    )
    assert values["seconds"] == pytest.approx(math.log(after.seconds / before.seconds))
    assert values["bytes"] == pytest.approx(math.log(after.bytes / before.bytes))
    x, params = 65536 * 1024, 8 * 2 * 1024 * 4096
    assert values["input bytes reached"] == pytest.approx(x / (x + params))
    assert (
        values["data reached"]
        == values["all data reached"]
        == values["own is data"]
        == 1
    )


def test_features_of_the_data_phase_start_after_the_best_cut_of_data(problem, batch):
    outlook = CutFeatures(problem)
    cut = problem.apply(problem.start(), batch)
    first = next(c for c in problem.actions(cut) if c.axis == "data")
    row = outlook.rows["data"].tolist().index(outlook.number[first])
    values = outlook.along(problem.start(), "data")[Phase.DATA][row]
    after = problem.measure(problem.apply(cut, first))
    assert values[KIND_FEATURES.index("seconds")] == pytest.approx(
        math.log(after.seconds / problem.measure(cut).seconds)
    )


def test_a_state_without_an_axis_equals_the_cuts_of_the_others_alone(problem, batch):
    other = cut_of(problem, "params.0.up", 1, "model")
    both, alone = problem.follow([other, batch]), problem.follow([other])
    assert both.key != alone.key
    assert problem.without(both, "data").key == alone.key
    assert problem.without(alone, "model").key == problem.start().key


def test_weights_for_other_features_are_refused(tmp_path):
    values = json.loads(SHIPPED.read_text())
    del values["weights"]["data"]["seconds"]
    path = tmp_path / "prior.json"
    path.write_text(json.dumps(values))
    with pytest.raises(SearchError, match=r"phase data .* unknown: seconds"):
        load_weights(path)


@pytest.mark.parametrize("make_prior", [kinds_prior, learned_prior])
def test_with_any_prior_one_seed_finds_one_plan(problem, make_prior):
    engine = Mcts(3, exploration=1.0, prior_fn=make_prior(problem))
    first, second = (search_cuts(problem, engine, Budget(trials=40)) for _ in range(2))
    assert first == second


def test_no_family_of_programs_is_in_both_training_and_evaluation():
    trained = {program.split(":")[0] for program in training.PROGRAMS}
    held_out = {program.split(":")[0] for program, _, _ in judged.CASES} | {"gpt3"}
    assert not trained & held_out
    assert json.loads(SHIPPED.read_text())["trained"]["programs"] == training.PROGRAMS


def test_the_fit_prefers_cuts_of_higher_worth():
    features = np.zeros((3, len(FEATURES)))
    features[1, FEATURES.index("own is data")] = 1
    worths = np.array([0.0, 1.0, 0.1])
    example = training.Example(Phase.NOTHING, features, np.ones(3), worths)
    weights, loss = training.fit([[example]])
    assert weights[Phase.NOTHING, FEATURES.index("own is data")] > 1
    assert not weights[Phase.DATA].any()
    assert loss < training.loss_of_kinds([[example]])


def test_a_cut_that_replaces_a_cut_of_the_path_is_worth_most(problem, batch):
    path = training._Path(problem, CutFeatures(problem), random.Random(0))
    start = problem.start()
    example = path.example(start, [batch], "data")
    row = path.outlook.rows["data"].tolist().index(path.outlook.number[batch])
    features = path.outlook.along(start, "data")[Phase.NOTHING][row]
    is_batch = (example.features == features).all(1)
    assert example.worths[is_batch].min() == pytest.approx(example.worths.max())
    assert example.worths[~is_batch].max() < example.worths.max()
