"""Monte Carlo tree search over states: transpositions and groups of actions."""

from __future__ import annotations

import math
from dataclasses import dataclass

from meshwright.search import Budget, Mcts, search
from tests.search.toys import Ring, Subset, Table, Trap, Watched


def test_sequences_that_lead_to_one_state_are_one_node():
    size = 8
    sequences = sum(math.perm(size, length) for length in range(size + 1))
    result = search(Subset(size, seed=0), Mcts(0), Budget())
    assert sequences == 109_601
    assert result.is_complete
    assert result.evaluations == 2**size
    assert result.trials < 3 * 2**size


def test_solved_nodes_are_not_visited_again():
    problem = Watched(Trap(3))
    result = search(problem, Mcts(0), Budget())
    assert result.is_complete
    assert result.trials < 3 * result.evaluations


def test_actions_that_lead_to_one_state_are_one_edge():
    problem = Table((3.0, 2.0, 1.0), ((1,) * 500 + (2,), (), ()))
    result = search(problem, Mcts(0), Budget())
    assert (result.cost, result.actions) == (1.0, (500,))
    assert result.is_complete
    assert result.trials < 10


@dataclass(frozen=True)
class Doors(Subset):
    """A hundred doors to one room and one to another, which is the better one."""

    def start(self):
        return None

    def actions(self, state):
        if state is None:
            return range(101)
        return [i for i in range(self.size) if i not in state]

    def apply(self, state, action):
        if state is None:
            return frozenset({-1} if action == 100 else ())
        return state | {action}

    def cost(self, state):
        if state is None:
            return 100.0
        return super().cost(state - {-1}) - 100 * (-1 in state)


def test_many_actions_to_one_state_do_not_hide_another_state():
    for seed in range(5):
        result = search(Doors(16, seed=1), Mcts(seed), Budget(trials=20))
        assert result.cost < -50


def test_a_cyclic_graph_is_searched_completely():
    result = search(Ring(30), Mcts(0), Budget())
    assert result.is_complete
    assert result.evaluations == 30


def test_the_action_of_largest_prior_is_tried_first():
    weights = [1.0, 5.0, 3.0]
    problem = Table((9.0, 8.0, 7.0, 6.0), ((1, 2, 3), (), (), ()))
    tried = []
    watched = Watched(problem)
    watched.cost = lambda state: tried.append(state) or problem.cost(state)
    engine = Mcts(0, prior_fn=lambda state, actions: weights[: len(actions)], longest=0)
    search(watched, engine, Budget())
    assert tried == [0, 2, 3, 1]


def test_a_walk_continues_from_infeasible_states():
    size = 60
    chain = Table((math.inf,) * size + (1.0,), (*((i + 1,) for i in range(size)), ()))
    assert search(chain, Mcts(0), Budget(evaluations=12)).is_feasible
