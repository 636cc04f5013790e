"""Proposals of a policy: all ops move at once, and their new order is cut anew.

From a valid partition, the draft, the policy gives each op the probabilities of going
one chip down, staying, or going one chip up. Moves are drawn in rounds; the best cut of
the ops, ordered by the chips to which they moved, is a proposal. The best partition so
far is the draft of the next round. A draft that is the best cut of its order gets better
only if several ops move together, which a cut does and moves of single ops do not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

import numpy as np

from meshwright.features.chips.graph.chip_graph import ChipGraph
from meshwright.features.chips.methods.contiguous import best_cut
from meshwright.features.chips.policy_network import PolicyInputs, move_probabilities
from meshwright.features.chips.problem.chip_problem import ChipProblem
from meshwright.learn.ppo import Experience, Policy, PolicyTrainer
from meshwright.search.arrays import Floats, Ints

ROUND = 10
"""Number of proposals in a round."""

_MOVES = 30.0
"""Mean number of ops that the policy's prior moves each way in a proposal."""


@dataclass(frozen=True, slots=True, eq=False)
class Round:
    """The proposals made from one draft.

    costs: bottleneck of each in seconds, infinite if it does not fit into memory.
    experience: moves and rewards, from which the policy learns.
    """

    chips: tuple[Ints, ...]
    costs: tuple[float, ...]
    experience: Experience


def play_round(
    problem: ChipProblem, policy: Policy, draft: Ints, rng: np.random.Generator
) -> Round:
    """Draw proposals of the policy from a valid draft, and evaluate them."""
    inputs = policy_inputs(problem, draft)
    moves = _drawn(move_probabilities(policy, inputs), rng)
    chips = tuple(_moved(problem, draft, each) for each in moves)
    costs = tuple(problem.load(each).cost for each in chips)
    draft_cost = problem.load(draft).cost
    rewards = np.array([_reward(cost, draft_cost) for cost in costs])
    return Round(chips, costs, Experience(inputs.padded(), moves, rewards))


def propose(
    problem: ChipProblem, policy: Policy, draft: Ints, seed: int
) -> Iterator[Ints]:
    """An endless stream of valid partitions that the policy proposes.

    The best partition so far is the draft of the next round.
    """
    yield from (chips for chips, _ in _proposals(problem, policy, draft, seed))


def fine_tune(
    problem: ChipProblem, trainer: PolicyTrainer, draft: Ints, seed: int
) -> Iterator[Ints]:
    """An endless stream of valid partitions from a policy that learns each round."""
    for chips, made in _proposals(problem, trainer, draft, seed):
        yield chips
        if chips is made.chips[-1]:
            trainer.learn(made.experience)


def _proposals(
    problem: ChipProblem, policy: Policy | PolicyTrainer, draft: Ints, seed: int
) -> Iterator[tuple[Ints, Round]]:
    rng = np.random.default_rng(seed)
    cost = problem.load(draft).cost
    while True:
        now = policy.policy if isinstance(policy, PolicyTrainer) else policy
        made = play_round(problem, now, draft, rng)
        for chips, new in zip(made.chips, made.costs, strict=True):
            yield chips, made
            if new < cost:
                draft, cost = chips, new


def _drawn(odds: Floats, rng: np.random.Generator) -> Ints:
    """Random moves of all ops for each proposal of a round: 0 down, 1 stay, 2 up.

    odds: probabilities of the three moves for each op.
    """
    draws = rng.random((ROUND, len(odds)))
    return (draws > odds[:, 0]).astype(np.int64) + (draws > odds[:, :2].sum(axis=1))


def _moved(problem: ChipProblem, draft: Ints, moves: Ints) -> Ints:
    """A valid partition near a draft after its ops have moved.

    It is the best cut of the ops, ordered by the chips to which they moved. If no cut
    fits into memory, the constraint solver repairs the moves themselves.
    moves: 0 down, 1 stay, 2 up, [N].
    """
    wanted = draft + moves - 1
    cut = best_cut(problem, _order_by(problem.graph, wanted))
    if cut is not None:
        return cut
    chips = np.clip(wanted, 0, problem.module.num_chips - 1)
    return problem.repaired(chips, draft)


def _order_by(graph: ChipGraph, wanted: Ints) -> Ints:
    """A topological order of the ops in which those with the lowest wanted chip come first.

    Of ops with the same wanted chip, the one that comes first in the graph does.
    """
    missing = np.bincount(graph.edges[:, 1], minlength=graph.num_ops)
    readers: list[list[int]] = [[] for _ in wanted]
    for source, target in graph.edges.tolist():
        readers[source].append(target)
    ready = [(int(wanted[i]), int(i)) for i in np.flatnonzero(missing == 0)]
    heapify(ready)
    order: list[int] = []
    while ready:
        _, op = heappop(ready)
        order.append(op)
        for reader in readers[op]:
            missing[reader] -= 1
            if not missing[reader]:
                heappush(ready, (int(wanted[reader]), reader))
    return np.array(order, np.int64)


def _reward(cost: float, draft_cost: float) -> float:
    """Log of how many times faster a proposal is than its draft; 0 if it is slower.

    A search keeps the best partition, so that slow proposals cost it nothing. With
    rewards below 0 for slow proposals, the policy learns within 200 steps to move
    nothing.
    """
    if not np.isfinite(cost):
        return 0.0
    return (
        max(float(np.log(draft_cost / cost)), 0.0) if np.isfinite(draft_cost) else 1.0
    )


def policy_inputs(problem: ChipProblem, draft: Ints) -> PolicyInputs:
    """Features of each op in a draft, from which the policy computes its probabilities.

    They describe the op, its chip, and the ops and chips next to it.
    """
    graph, module = problem.graph, problem.module
    load, edges = problem.load(draft), graph.edges
    total, used = graph.seconds.sum() or 1.0, int(draft.max()) + 1
    ideal = total / module.num_chips
    above, below = problem.relatives_s
    busy = np.concatenate([[0.0], load.chip_s, [0.0]]) / (load.bottleneck_s or 1.0)
    link = np.concatenate([[0.0], load.link_s, [0.0]]) / (load.bottleneck_s or 1.0)
    sent = np.bincount(graph.producers, graph.value_bytes, minlength=graph.num_ops) / (
        module.link_bytes_per_s * ideal
    )
    crossing = draft[edges[:, 1]] - draft[edges[:, 0]]
    ahead = np.bincount(edges[:, 0], crossing > 0, graph.num_ops)
    behind = np.bincount(edges[:, 1], crossing > 0, graph.num_ops)
    columns = [
        np.log1p(graph.seconds / ideal),
        above / total,
        below / total,
        np.cumsum(graph.seconds) / total,
        draft / module.num_chips,
        busy[draft],
        busy[draft + 1],
        busy[draft + 2],
        busy[draft + 1] >= 1 - 1e-9,
        link[draft],
        link[draft + 1],
        _share_within(graph.seconds, draft, module.num_chips),
        np.minimum(ahead, 2) / 2,
        np.minimum(behind, 2) / 2,
        np.log1p(sent),
        load.memory_bytes[draft] / module.memory_bytes,
        np.full(graph.num_ops, module.num_chips / 36),
        np.full(graph.num_ops, used / module.num_chips),
    ]
    features = np.stack(columns, axis=1).astype(np.float32)
    share = graph.seconds / total
    rate = np.log(_MOVES * share + 1e-2 / graph.num_ops)
    prior = np.stack([rate, np.zeros_like(rate), rate], axis=1).astype(np.float32)
    return PolicyInputs(features, prior, edges)


def _share_within(seconds: Floats, chips: Ints, num_chips: int) -> Floats:
    """Share of a chip's seconds that come before the middle of each op on it.

    Ops of a chip run in the order of the graph.
    """
    order = np.argsort(chips, kind="stable")
    sums = np.cumsum(seconds[order]) - seconds[order] / 2
    whole = np.bincount(chips, seconds, num_chips)
    before = np.concatenate([[0.0], np.cumsum(whole)])[chips[order]]
    share = np.empty_like(sums)
    share[order] = (sums - before) / np.maximum(whole[chips[order]], 1e-30)
    return share
