"""Tree search: its plans run, depend only on the seed, and keep the budget."""

import math
from collections import Counter

import pytest

import meshwright as mw
from benchmarks.train.train_prior import kinds_prior
from meshwright.machine import Mesh
from meshwright.partitioner.decide import decide
from meshwright.partitioner.lower import Gather
from meshwright.planner.candidates.expert_plans import expert_strategies
from meshwright.planner.tree.cut_problem import InputCut
from meshwright.planner.tree.prior import learned_prior
from meshwright.planner.tree.tree_search import (
    drop_useless,
    make_engine,
    make_problem,
    search_cuts,
)
from meshwright.predict.estimate import estimate
from meshwright.search import Annealing, Beam, Budget, Evolution, Mcts, Sampling
from tests.planner.programs import LARGE, MESH, space_of
from zoo import gpt3

ENGINES = {
    "annealing": lambda prior: Annealing(0, prior_fn=prior),
    "beam": lambda prior: Beam(prior_fn=prior),
    "evolution": lambda prior: Evolution(0, prior_fn=prior),
    "mcts": lambda prior: Mcts(0, exploration=1.0, prior_fn=prior),
    "sampling": lambda prior: Sampling(0, prior_fn=prior),
}


@pytest.fixture(scope="module")
def space():
    return space_of(LARGE)


@pytest.fixture(scope="module")
def problem(space):
    return make_problem(space, Mesh(MESH))


def state_of(problem, space, tactics):
    decided = decide(space.captured, Mesh(MESH), tactics, Gather.SHARED)
    return decided, problem.state_from(decided.work.state)


def test_layers_are_decided_once(problem):
    num_groups = len({cut.group for cut in problem.cuts})
    assert num_groups < len(problem.work.graph.input_nodes) == 17


def test_inputs_that_propagation_cuts_need_no_decision(problem):
    start = problem.start()
    before = problem.actions(start)
    after = problem.actions(problem.apply(start, before[0]))
    assert before[0] not in after
    assert len(after) < len(before)


def test_a_state_has_one_key_whatever_the_order_of_cuts(problem):
    start = problem.start()
    first = problem.actions(start)[0]
    other = first._replace(dim=1 - first.dim, axis="model")
    ways = [problem.follow(way) for way in ((first, other), (other, first))]
    assert ways[0].key == ways[1].key
    assert problem.key(ways[0]) != problem.key(start)


def test_a_state_that_does_not_fit_costs_more_than_one_that_does(space):
    problem = make_problem(space, Mesh(MESH), limit=1.0)
    point = problem.apply(problem.start(), problem.cuts[0])
    assert problem.cost(point) > problem.measure(problem.start()).seconds


@pytest.mark.parametrize("name", ENGINES)
def test_any_engine_finds_a_plan_within_its_budget(problem, name):
    engine = ENGINES[name](learned_prior(problem))
    found = search_cuts(problem, engine, Budget(trials=60))
    assert found.evaluations <= 60
    assert found.cost.seconds < problem.measure(problem.start()).seconds


def test_one_seed_finds_one_plan(problem):
    first, second = (
        search_cuts(problem, make_engine(problem, 3), Budget(trials=40))
        for _ in range(2)
    )
    assert first == second


def test_the_tactics_lead_to_the_state_that_was_found(space):
    problem = make_problem(space, Mesh(MESH))
    found = search_cuts(problem, make_engine(problem, 1), Budget(trials=120))
    assert found.fits
    decided, point = state_of(problem, space, found.tactics)
    assert math.isclose(
        problem.measure(point).seconds, found.cost.seconds, rel_tol=0.02
    )
    exact = estimate(decided, space.machine, donate_state=True)
    assert math.isclose(exact.step_time_s, found.cost.seconds, rel_tol=0.3)


def test_it_is_at_least_as_good_as_data_parallelism(space, problem):
    tactics = [mw.data_parallel("data", "x"), mw.data_parallel("model", "x")]
    _, point = state_of(problem, space, tactics)
    found = search_cuts(problem, make_engine(problem, 0), Budget(trials=150))
    assert found.cost.seconds <= 1.001 * problem.measure(point).seconds


def test_cuts_that_save_nothing_are_dropped(problem):
    useful = search_cuts(problem, make_engine(problem, 0), Budget(trials=60)).cuts
    repeated = InputCut(*useful[0])
    assert drop_useless(problem, (*useful, repeated)) == drop_useless(problem, useful)


@pytest.mark.slow
def test_every_seed_matches_the_expert_plan_within_50_trajectories():
    """Megatron and ZeRO-3 on T24; docs/autoplan.md has the curve."""
    mesh = Mesh({"data": 8, "model": 4})
    space = space_of(gpt3.t24(), "tpu-v3", 32)
    problem = make_problem(space, mesh)
    expert = expert_strategies(mesh)["Megatron + ZeRO-3"]
    decided = decide(space.captured, mesh, expert, Gather.SHARED)
    wanted = problem.cost(problem.state_from(decided.work.state))
    for seed in range(25):
        found = search_cuts(problem, make_engine(problem, seed), Budget(trials=50))
        assert found.fits
        assert found.cost.seconds <= wanted


def test_cuts_of_one_kind_share_its_weight(problem):
    start = problem.start()
    cuts = problem.actions(start)
    weights = kinds_prior(problem)(start, cuts)
    by_state = Counter()
    for cut, weight in zip(cuts, weights, strict=True):
        by_state[problem.apply(start, cut).key] += weight
    assert all(math.isclose(total, 1) for total in by_state.values())
    assert len(by_state) < len(cuts)
