"""Monte Carlo tree search over states, not over sequences of actions.

UCT (Kocsis and Szepesvari, ECML 2006) on a graph. A state that is reached in two ways
is one node (a transposition). Actions of a state that lead to the same state are one
edge. So all ways to a state share its statistics (Childs, Brodeur and Kocsis, CIG 2008;
for partitioning: Alabed et al., arXiv 2210.06352). The reward of a cost is its rank
among the costs seen. A node is solved if all states below it have been seen; it is then
not visited any more.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_left, bisect_right, insort
from collections.abc import Hashable
from dataclasses import dataclass, field
from enum import Enum

from meshwright.errors import SearchError
from meshwright.search.loop.engine import Exploration
from meshwright.search.loop.problem import Prior, Problem
from meshwright.search.loop.walk import Merits, Walker, order


@dataclass(frozen=True, slots=True)
class Mcts:
    """Monte Carlo tree search: each trajectory adds one state to the tree.

    exploration: UCT's constant, the weight of trying rare actions.
    widening: a state visited n times has about n ** widening edges (progressive
        widening). With 1, every action is tried before any child is expanded.
    greed: weight, from 0 to 1, of the lowest cost below a state in the state's value.
        The mean reward has the rest of the weight.
    num_draws: number of actions drawn at random, of which the one with the highest mean
        reward is taken. With 1 the walks are uniform, as in UCT.
    longest: largest number of actions of a random walk beyond the tree.
    """

    seed: int
    exploration: float = 0.3
    widening: float = 0.5
    greed: float = 0.5
    num_draws: int = 3
    longest: int = 64
    prior_fn: Prior | None = None
    patience: int | None = 10_000

    def __post_init__(self) -> None:
        if not (0 < self.widening <= 1 and 0 <= self.greed <= 1):
            raise SearchError(
                f"widening is {self.widening} and greed {self.greed}; wanted"
                " 0 < widening <= 1 and 0 <= greed <= 1"
            )
        if self.num_draws < 1:
            raise SearchError(f"num_draws is {self.num_draws}; wanted one or more")

    def explore[S, A: Hashable](self, problem: Problem[S, A]) -> Exploration[S, A]:
        return (yield from _Tree(self, problem).grow())


class Stop(Enum):
    """The option, in every state besides its actions, to end the trajectory there."""

    HERE = "here"


@dataclass(slots=True, eq=False)
class TreeNode[S, A]:
    """A state in the search tree, and the statistics of all trajectories through it.

    untried: actions and `Stop` not tried yet, next one last; `None` before the first
        visit.
    total, best: sum of the rewards, and lowest cost, of these trajectories.
    is_priced: whether the cost of the state itself is known.
    serial: number of the last of these trajectories.
    """

    state: S
    untried: list[A | Stop] | None = None
    edges: list[Edge[S, A]] = field(default_factory=list)
    visits: int = 0
    total: float = 0.0
    best: float = math.inf
    is_priced: bool = False
    is_solved: bool = False
    serial: int = 0


@dataclass(slots=True, eq=False)
class Edge[S, A]:
    """All actions of a state that lead to one child node.

    `action` is the first of them.
    """

    action: A
    child: TreeNode[S, A]
    visits: int = 0


class Scale:
    """The costs seen so far, sorted; gives each cost a reward by its rank among them.

    Ranks are used since costs have long tails: a plan that exceeds memory may cost a
    hundred times as much as a good one. On a linear scale all good plans would get the
    same reward.
    """

    def __init__(self) -> None:
        self._costs: list[float] = []

    def reward(self, cost: float) -> float:
        """The reward of a cost: the cube of the share of higher costs among those seen.

        The cost is then added to those seen. An infinite cost has reward 0.
        """
        if cost == math.inf:
            return 0.0
        costs = self._costs
        rank = bisect_left(costs, cost) + bisect_right(costs, cost)
        share = 1 - rank / (2 * len(costs)) if costs else 0.5
        insort(costs, cost)
        return share**3

    def bounds(self) -> tuple[float, float]:
        """The median of the costs seen, and how far the lowest cost is below it."""
        costs = self._costs
        if not costs:
            return 0.0, 1.0
        middle = costs[len(costs) // 2]
        return middle, middle - costs[0] or 1.0


class _Tree[S, A: Hashable]:
    """The search tree: all nodes by the keys of their states, and shared statistics."""

    def __init__(self, options: Mcts, problem: Problem[S, A]) -> None:
        self.options = options
        self.problem = problem
        self.rng = random.Random(options.seed)
        self.merits: Merits[A] = Merits()
        self.walker = Walker(
            problem,
            self.rng,
            options.prior_fn,
            options.longest,
            self.merits,
            options.num_draws,
        )
        start = problem.start()
        self.root: TreeNode[S, A] = TreeNode(start)
        self.nodes: dict[Hashable, TreeNode[S, A]] = {problem.key(start): self.root}
        self.num_open = 1
        """Number of nodes with untried actions."""
        self.serial = 0
        self.scale = Scale()

    def grow(self) -> Exploration[S, A]:
        while self.num_open and not self.root.is_solved:
            self.serial += 1
            path, edges, is_new = self._descend()
            state = path[-1].state
            actions = [edge.action for edge in edges]
            if is_new:
                cost = yield from self.walker.roll_out([state], actions)
                path[-1].is_priced = len(actions) == len(edges)
            else:
                cost = yield self.problem.key(state), state, actions
            for edge in edges:
                edge.visits += 1
            self._learn(path, actions, cost)
        return not self.num_open

    # -- selection ----------------------------------------------------------------------

    def _descend(self) -> tuple[list[TreeNode[S, A]], list[Edge[S, A]], bool]:
        """Nodes and edges from the root to a leaf, and whether the leaf is new.

        From a leaf never visited before, the trajectory continues as a random walk; in
        another leaf it ends.
        """
        node, path, edges = self.root, [self.root], list[Edge[S, A]]()
        while True:
            node.serial = self.serial
            is_new = node.visits == 0
            edge = None if is_new else self._choose(node)
            if edge is None:
                if is_new or not node.is_solved or len(path) == 1:
                    return path, edges, is_new
                path.pop()
                edges.pop()
                node = path[-1]
            else:
                node = edge.child
                path.append(node)
                edges.append(edge)

    def _choose(self, node: TreeNode[S, A]) -> Edge[S, A] | None:
        """The edge on which to leave a node; `None` if the trajectory ends there."""
        if node.untried is None:
            node.untried = self._open(node)
        while node.untried:
            room = node.visits**self.options.widening
            if len(node.edges) >= room:
                edge = self._select(node)
                if edge is not None:
                    return edge
            action = self._pop(node.untried)
            self.num_open -= not node.untried
            if action is Stop.HERE:
                return None
            edge = self._expand(node, action)
            if edge is not None:
                return edge
        edge = self._select(node)
        if edge is None:
            node.is_solved = all(e.child.is_solved for e in node.edges)
        return edge

    def _open(self, node: TreeNode[S, A]) -> list[A | Stop]:
        """List all options of a node at its first visit: its actions and `Stop`.

        They are in order of the prior, the next one to try last. `Stop` is left out if
        the cost of the state is known.
        """
        actions = self.problem.actions(node.state)
        ordered = order(self.options.prior_fn, node.state, actions)
        untried: list[A | Stop] = [*reversed(ordered)]
        if not node.is_priced:
            untried.insert(int(self.rng.random() * (len(untried) + 1)), Stop.HERE)
        self.num_open -= not untried
        return untried

    def _pop(self, untried: list[A | Stop]) -> A | Stop:
        """Remove and return the option to try next from the list `untried`.

        With a prior it is the last one; else the best by mean reward of some random
        draws.
        """
        if self.options.prior_fn is None:
            rng, size = self.rng.random, len(untried)
            best, chosen = -math.inf, -1
            for _ in range(self.options.num_draws):
                index = int(rng() * size)
                action = untried[index]
                merit = math.inf if action is Stop.HERE else self.merits.of(action)
                if merit > best:
                    best, chosen = merit, index
            untried[chosen], untried[-1] = untried[-1], untried[chosen]
        return untried.pop()

    def _expand(self, node: TreeNode[S, A], action: A) -> Edge[S, A] | None:
        """Add an edge to a node for an action, and return it; `None` if it is useless.

        It is useless if the node has an edge to that child already, if all states below
        the child have been seen, or if the child is on the path.
        """
        state = self.problem.apply(node.state, action)
        key = self.problem.key(state)
        child = self.nodes.get(key)
        if child is None:
            child = self.nodes[key] = TreeNode(state)
            self.num_open += 1
        elif any(edge.child is child for edge in node.edges):
            return None
        edge = Edge(action, child)
        node.edges.append(edge)
        if child.is_solved or child.serial == self.serial:
            return None
        return edge

    def _select(self, node: TreeNode[S, A]) -> Edge[S, A] | None:
        """The edge with the largest upper confidence bound (UCB) on its value."""
        middle, span = self.scale.bounds()
        greed, log_visits = self.options.greed, math.log(node.visits)
        best, chosen = -math.inf, None
        for edge in node.edges:
            child = edge.child
            if child.is_solved or child.serial == self.serial:
                continue
            mean = child.total / (child.visits or 1)
            height = max((middle - child.best) / span, 0.0)
            value = mean + greed * (height - mean)
            trust = math.sqrt(log_visits / (edge.visits or 1))
            bound = value + self.options.exploration * trust
            if bound > best:
                best, chosen = bound, edge
        return chosen

    # -- backup ------------------------------------------------------------------------

    def _learn(self, path: list[TreeNode[S, A]], actions: list[A], cost: float) -> None:
        """Add the cost of a trajectory to all nodes that it visited."""
        reward = self.scale.reward(cost)
        for node in path:
            node.visits += 1
            node.total += reward
            node.best = min(node.best, cost)
        self.merits.learn(actions, reward)
