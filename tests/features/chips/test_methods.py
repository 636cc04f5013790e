"""Loads, and methods against enumeration."""

import itertools
from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings

from meshwright.features.chips.constraints.checker import violations
from meshwright.features.chips.graph.chip_graph import ChipEdge, ChipGraph, ChipOp
from meshwright.features.chips.methods.contiguous import best_cut
from meshwright.features.chips.methods.exact import solve_exactly
from meshwright.features.chips.methods.moves import ChipMoves, anneal, random_start
from meshwright.features.chips.methods.policy import (
    fine_tune,
    play_round,
    policy_inputs,
    propose,
)
from meshwright.features.chips.policy_network import move_probabilities, new_policy
from meshwright.features.chips.problem.chip_module import ChipModule
from meshwright.features.chips.problem.chip_problem import ChipProblem
from meshwright.learn.ppo import PolicyTrainer
from meshwright.search import Budget
from tests.features.chips.graphs import (
    chain,
    module,
    problem,
    random_graphs,
    residual,
    valid_partitions,
)

TWO_ORDERS = ChipGraph.of(
    [ChipOp("a", 2.0), ChipOp("b", 2.0), ChipOp("c", 1.0), ChipOp("d", 1.0)],
    [ChipEdge(0, 2, 1), ChipEdge(1, 3, 1)],
)
"""Two chains, which are balanced on two chips only if one follows the other."""


def test_a_load_is_that_counted_by_hand():
    ops = [ChipOp("a", 1.0, 10), ChipOp("b", 2.0), ChipOp("c", 4.0, 20)]
    graph = ChipGraph.of(
        ops, [ChipEdge(0, 1, 100), ChipEdge(0, 2, 300), ChipEdge(1, 2, 50)]
    )
    found = ChipProblem(graph, ChipModule(3, 1e6, 100.0, 0.5)).load(np.array([0, 0, 1]))
    assert found.chip_s.tolist() == [3.0, 4.0, 0.0]
    assert found.link_s.tolist() == [350 / 100 + 2 * 0.5, 0.0]
    # Weights, what is sent and received for the whole time, and the value from a to b.
    assert found.memory_bytes.tolist() == [10 + 350 + 100, 20 + 350, 0]
    assert found.bottleneck_s == 4.5


def test_a_value_for_a_far_chip_passes_all_links_once():
    ops = [ChipOp(name, 1.0) for name in "abc"]
    graph = ChipGraph.of(ops, [ChipEdge(0, 1, 10), ChipEdge(0, 2, 10)])
    found = ChipProblem(graph, module(3, rate=1.0)).load(np.array([0, 1, 2]))
    assert found.link_s.tolist() == [20.0, 10.0]


def test_a_memory_that_overflows_makes_the_cost_infinite():
    graph = chain([1.0, 1.0], num_bytes=100)
    assert (
        ChipProblem(graph, module(2, memory=99)).load(np.array([0, 1])).cost == np.inf
    )


@pytest.mark.parametrize("chips", [1, 2, 3, 5])
def test_the_best_cut_of_a_chain_is_the_best_partition(chips):
    seconds = [3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0]
    found = problem(chain(seconds), chips)
    best = min(
        max(sum(seconds[a:b]) for a, b in itertools.pairwise((0, *cuts, len(seconds))))
        for cuts in itertools.combinations(range(1, len(seconds)), chips - 1)
    )
    chosen = best_cut(found)
    assert chosen is not None
    assert found.load(chosen).bottleneck_s == best


@settings(max_examples=25, deadline=None)
@given(random_graphs())
def test_best_cuts_are_valid_and_not_below_the_bound(graph):
    found = problem(graph, 4)
    chosen = best_cut(found)
    assert chosen is not None
    assert not list(violations(graph, chosen, 4))
    assert found.load(chosen).bottleneck_s >= found.bound_s * (1 - 1e-12)


def test_a_cut_keeps_weights_within_the_memory():
    graph = ChipGraph.of(
        [ChipOp(f"op {i}", 1.0, 40) for i in range(4)],
        [ChipEdge(i, i + 1, 1) for i in range(3)],
    )
    found = ChipProblem(graph, ChipModule(3, 90, 1e9))
    chosen = best_cut(found)
    assert chosen is not None
    assert found.load(chosen).fits
    assert best_cut(ChipProblem(graph, ChipModule(2, 81, 1e9))) is None


@pytest.mark.parametrize("graph", [residual(3), chain([2.0, 1.0, 3.0, 1.0, 1.0])])
def test_cp_sat_finds_the_optimum_of_enumeration(graph):
    found = problem(graph, 3)
    least = min(found.load(p).cost for p in valid_partitions(graph, 3))
    start = np.zeros(graph.num_ops, np.int64)
    answer = solve_exactly(found, start, seconds=20)
    assert answer.is_optimal
    assert found.load(answer.chips).cost == pytest.approx(least)
    assert answer.bound_s == pytest.approx(least, rel=1e-5)
    assert found.bound_s <= least


def test_annealing_ends_valid_and_not_above_its_start():
    found = problem(residual(8), 4)
    start = random_start(found, np.random.default_rng(0))
    chips, result = anneal(found, start, 0, Budget(evaluations=100))
    assert result.evaluations <= 100
    assert found.load(chips).cost == pytest.approx(result.cost)
    assert result.cost < found.load(start).cost
    assert not list(violations(found.graph, chips, 4))


def test_annealing_from_an_optimum_ends_when_its_budget_is_used(monkeypatch):
    found, apply, count = problem(chain([1.0] * 15), 8), ChipMoves.apply, 0

    def counted(moves, state, action):
        nonlocal count
        count += 1
        assert count < 2 * 15 * 20 * 300, "more work than the budget allows"
        return apply(moves, state, action)

    monkeypatch.setattr(ChipMoves, "apply", counted)
    cut = best_cut(found)
    _, result = anneal(found, cut, 0, Budget(evaluations=300))
    assert result.evaluations == 300
    assert result.cost == found.load(cut).cost == 2.0


def test_annealing_ends_where_few_assignments_exist():
    found = problem(chain([1.0, 1.0]), 2)
    _, result = anneal(found, np.array([0, 1]), 0, Budget(evaluations=10))
    assert result.trials <= 20 * 10
    assert result.evaluations <= 4


def test_an_untrained_policy_moves_some_ops_and_long_ones_most():
    found = problem(chain([1.0] * 300 + [100.0]), 4)
    inputs = policy_inputs(found, np.zeros(301, np.int64))
    odds = move_probabilities(new_policy(0), inputs)
    assert odds.sum(axis=1) == pytest.approx(np.ones(301))
    assert odds[300, 2] > 3 * odds[0, 2]
    assert 10 < odds[:, 2].sum() < 31


def test_a_proposal_is_the_best_cut_of_another_order():
    found = problem(TWO_ORDERS, 2)
    cut = best_cut(found)
    assert found.load(cut).cost == 4.0
    proposals = islice(propose(found, new_policy(0), cut, 0), 50)
    assert min(found.load(chips).cost for chips in proposals) == 3.0


def test_proposals_are_valid_and_the_same_for_a_seed():
    found = problem(residual(8), 4)
    draft = found.repaired(found.even_weights())
    first, again = (
        [c.tolist() for c in islice(propose(found, new_policy(0), draft, 3), 12)]
        for _ in range(2)
    )
    assert first == again
    assert not any(any(violations(found.graph, np.array(c), 4)) for c in first)


@pytest.mark.slow
def test_training_makes_moves_that_paid_more_likely():
    found = problem(TWO_ORDERS, 2)
    cut, rng = best_cut(found), np.random.default_rng(0)
    trainer = PolicyTrainer(new_policy(0), rate=1e-2)

    def mean_reward():
        rounds = [play_round(found, trainer.policy, cut, rng) for _ in range(20)]
        return np.mean([each.experience.rewards.mean() for each in rounds])

    before = mean_reward()
    for _ in range(30):
        made = play_round(found, trainer.policy, cut, rng)
        trainer.learn(made.experience)
    assert mean_reward() > 1.2 * before > 0


@pytest.mark.slow
def test_fine_tuning_proposes_valid_partitions_and_learns():
    found = problem(TWO_ORDERS, 2)
    trainer = PolicyTrainer(new_policy(0), rate=1e-2)
    made = list(islice(fine_tune(found, trainer, best_cut(found), 0), 30))
    assert not any(any(violations(found.graph, chips, 2)) for chips in made)
    assert trainer.steps_done >= 1
