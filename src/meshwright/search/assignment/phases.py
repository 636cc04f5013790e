"""The phases of a solve: message passing, a search of the core, a search of the rest.

The core is the few choices of each node that are likely in the best solutions,
according to the messages (core problems: Balas and Zemel, Operations Research 28,
1980). The last phase searches all choices that a solution better than the best one so
far may contain (reduced-cost fixing).
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from meshwright.errors import AssignmentError
from meshwright.search.arrays import Bools, Floats
from meshwright.search.assignment.bounds.message_passing import MIN_RISE, Messages
from meshwright.search.assignment.incumbent.incumbent import ROUNDING, Incumbent
from meshwright.search.assignment.incumbent.solution import (
    Clock,
    Progress,
    SolveOptions,
)
from meshwright.search.assignment.presolve.merge import merge_followers
from meshwright.search.assignment.presolve.presolve import merge, presolve, with_memory
from meshwright.search.assignment.primal.dive import dive
from meshwright.search.assignment.primal_dual import search_primal_dual
from meshwright.search.assignment.problem.assignment import Assignment
from meshwright.search.assignment.problem.memory_rows import memory_of
from meshwright.search.assignment.problem.reduced_problem import finite_graph
from meshwright.search.assignment.problem.work_rates import (
    DIVE_STEP,
    MERGE,
    PASS,
    RESTRICT,
)

_SWEEPS, _MAX_ROUNDS = 10, 200
"""Forward and backward passes of messages in a round, and the largest number of rounds.

The second number counts only if `SolveOptions.rounds` sets no limit."""

_MESSAGE_SHARE, _MESSAGE_SHARE_BY_ROUNDS = 0.2, 0.5
"""Share of the remaining time for message passing.

The first number is for solves without a limit on rounds, the second with one."""

_DIVE_STEPS, _DIVE_SHARE = 300, 0.6
"""Number of steps of a dive, and the share of the remaining time after which it hurries.

With 100 steps EfficientNet on 16 by 4 H100 gets 5 to 76 % slower plans, after 10 to 40
rounds."""

_DIVE_PASSES = 3
"""Work of one step of a dive, in passes of message passing over the graph.

Two passes send messages; computing the margins takes as long as a third.
"""

_EARLY_ROUNDS = 6
"""Rounds of message passing before a first dive into the core, if the bound rises on.

EfficientNet on 8 by 4 TPU v3 came to a plan of 10.5 ms after three rounds and of 7.1 ms
after six, in the same 2 s.
"""

_CORE_EXCESS = 3e-4
"""Largest min-marginal excess of a choice in the core, as a share of the lower bound.

The excess says how far above the bound every solution with this choice costs at least.
With three times as much, bucket elimination is not exact any more for some of the
benchmark programs.
"""

_CORE_ROUNDS = 20
"""Largest number of rounds of large neighbourhood search among the core's choices."""

_CORE_SHARE, _CORE_SHARE_BY_ROUNDS = 0.3, 0.7
"""Share of the remaining time for the search of the core.

The first number is for solves without a limit on rounds, the second with one."""


def run(
    problem: Assignment,
    clock: Clock,
    options: SolveOptions,
    seed: int,
    on_progress: Callable[[Progress], None] | None,
) -> tuple[Incumbent, Floats | None]:
    """Solve a problem; return the best solution, and messages for the next solve.

    The solve ends when its time is up, the optimum is proven, or Ctrl-C is pressed. The
    messages are those of the first phase (see `SolveOptions.messages`).
    """
    incumbent = Incumbent(*merge(problem), clock, options, on_progress)
    clock.count(MERGE, len(problem.tables))
    values = None
    try:
        if options.start is not None:
            incumbent.begin_from(np.asarray(options.start))
        messages = messages_of(incumbent, options.messages)
        values = messages.arrays.values
        rounds = num_message_rounds(options)
        if pass_messages(incumbent, messages, min(_EARLY_ROUNDS, rounds)):
            _search_core(incumbent, problem, messages, seed, 0)
            pass_messages(incumbent, messages, rounds - _EARLY_ROUNDS)
        _search_core(incumbent, problem, messages, seed, _CORE_ROUNDS)
        if not incumbent.is_over:
            rounding = ROUNDING * abs(incumbent.cost)
            _, excess = messages.decode()
            kept = messages.bound + excess <= incumbent.cost + rounding
            incumbent = _restricted(incumbent, problem, kept)
            messages = messages_of(incumbent)
            pass_messages(incumbent, messages, rounds)
            offer_dive(incumbent, messages)
            search_primal_dual(incumbent, messages, seed, options.rounds)
    except KeyboardInterrupt:
        incumbent.stopped = True
    return incumbent, values


def _search_core(
    incumbent: Incumbent,
    problem: Assignment,
    messages: Messages,
    seed: int,
    rounds: int,
) -> None:
    """Look for solutions in the core, by a dive and then a search.

    The core is the few choices of each node that are likely in the best solutions.
    Nothing is done if there are memory constraints.
    rounds: largest number of rounds of the search; with 0 there is only the dive.
    """
    if incumbent.is_over or incumbent.memory.num_rows:
        return
    _, excess = messages.decode()
    kept = excess <= _CORE_EXCESS * abs(messages.bound)
    if incumbent.choices is not None:
        kept[incumbent.reduced.graph.starts[:-1] + incumbent.choices] = True
    reduced = None if kept.all() else merge_followers(incumbent.reduced, kept)
    incumbent.clock.count(RESTRICT, len(incumbent.reduced.graph.tables))
    if reduced is None:  # the core is the whole problem, or has no solution
        return
    options = incumbent.options
    share = _CORE_SHARE if options.rounds is None else _CORE_SHARE_BY_ROUNDS
    part_s = incumbent.clock.elapsed_s + share * incumbent.clock.left_s
    clock = replace(incumbent.clock, budget_s=part_s)
    core = Incumbent(reduced, memory_of(problem, reduced), clock, options, None)
    try:
        best = incumbent.lifted()
        if best is not None:
            core.begin_from(best)
        inner = messages_of(core)
        pass_messages(core, inner, num_message_rounds(options))
        offer_dive(core, inner)
        if rounds:
            most = rounds if options.rounds is None else min(options.rounds, rounds)
            search_primal_dual(core, inner, seed, most)
    finally:
        core_best = core.lifted()
        if core_best is not None:
            incumbent.offer(incumbent.reduced.nearest(core_best))


def _restricted(incumbent: Incumbent, problem: Assignment, kept: Bools) -> Incumbent:
    """The incumbent of the same solve with only the choices in the mask `kept`.

    Without a limit on rounds, presolve also removes dominated choices. With a limit it
    does not: once the core is known, this would take longer than the rest of most
    solves.
    """
    reduced = merge_followers(incumbent.reduced, kept)
    incumbent.clock.count(RESTRICT, len(incumbent.reduced.graph.tables))
    finish = presolve if incumbent.options.rounds is None else with_memory
    try:
        return incumbent.restricted(*finish(problem, reduced))
    except AssignmentError:
        if incumbent.choices is None:
            raise
        incumbent.raise_bound(incumbent.cost)
        return incumbent


def messages_of(incumbent: Incumbent, values: Floats | None = None) -> Messages:
    """An object that passes messages on the reduced problem of an incumbent.

    values: messages to start from, zero by default.
    """
    graph = finite_graph(incumbent.reduced)
    return Messages(graph, incumbent.reduced.costs, values)


def num_message_rounds(options: SolveOptions) -> int:
    """The largest number of rounds of message passing in a solve with these options."""
    return _MAX_ROUNDS if options.rounds is None else options.rounds


def pass_messages(incumbent: Incumbent, messages: Messages, rounds: int) -> bool:
    """Pass messages in rounds while the bound rises and a share of the time lasts.

    The choices read off the messages are offered to the incumbent after each round.
    Returns whether the bound was still rising at the end.
    """
    clock = incumbent.clock
    by_rounds = incumbent.options.rounds is not None
    share = _MESSAGE_SHARE_BY_ROUNDS if by_rounds else _MESSAGE_SHARE
    ends_s = clock.elapsed_s + share * clock.left_s
    for _ in range(rounds):
        if incumbent.is_over or clock.elapsed_s >= ends_s:
            return False
        before = messages.bound
        incumbent.raise_bound(messages.sweep(_SWEEPS))
        clock.count(PASS, 2 * _SWEEPS * messages.num_entries)
        incumbent.offer(messages.decode()[0])
        if messages.bound < before + MIN_RISE * abs(before):
            return False
    return True


def offer_dive(incumbent: Incumbent, messages: Messages) -> None:
    """Offer the solution of a dive to the incumbent; do nothing if memory is limited.

    The messages that guide a dive ignore memory.
    """
    if incumbent.is_over or incumbent.memory.num_rows:
        return
    clock = incumbent.clock
    late_s = clock.elapsed_s + _DIVE_SHARE * clock.left_s
    penalty = incumbent.reduced.penalty

    def is_late(share: float) -> bool:
        clock.count(DIVE_STEP, 1.0)
        clock.count(PASS, _DIVE_PASSES * share * messages.num_entries)
        return clock.elapsed_s >= late_s

    incumbent.offer(dive(messages, _DIVE_STEPS, penalty, is_late))
