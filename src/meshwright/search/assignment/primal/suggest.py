"""Bounds by messages, and first solutions by what they say."""

from __future__ import annotations

from meshwright.search.arrays import Floats
from meshwright.search.assignment.bounds.messages import Messages
from meshwright.search.assignment.incumbent.incumbent import Incumbent
from meshwright.search.assignment.incumbent.solution import SolveOptions
from meshwright.search.assignment.primal.dive import dive
from meshwright.search.assignment.problem.cost_graph import finite_graph

_SWEEPS, _MOST_LOOKS = 10, 200
"""Sweeps of messages between looks at them, and looks where turns do not count."""

RISE = 2e-4
"""Part of the bound that it has to gain between looks, and in a turn."""

_FOR_MESSAGES, _BY_TURNS = 0.2, 0.5
"""Of the time that is left, for messages at most; so much of it where turns count."""

_DIVE_STEPS, _FOR_DIVE = 300, 0.6
"""Steps of a dive, and of the time that is left, for one before it makes haste. With 100
steps EfficientNet on 16 by 4 H100 comes out 5 to 76 % worse, after 10 to 40 looks."""


def messages_of(pool: Incumbent, told: Floats | None = None) -> Messages:
    """Those of a kernel; told: messages to begin with."""
    graph = finite_graph(pool.reduced, pool.reduced.penalty)
    return Messages(graph, pool.reduced.costs, told)


def looks_of(options: SolveOptions) -> int:
    """Looks at messages, at most."""
    return _MOST_LOOKS if options.rounds is None else options.rounds


def pass_messages(pool: Incumbent, messages: Messages, looks: int) -> bool:
    """Messages for as long as they raise the bound; what they suggest is offered.

    For a part of the time at most: with turns that is seldom reached, and what comes out
    is the same each time. Whether after so many looks at them they still raise it.
    """
    clock = pool.clock
    share = _FOR_MESSAGES if pool.options.rounds is None else _BY_TURNS
    ends_s = clock.elapsed_s + share * clock.left_s
    for _ in range(looks):
        if pool.is_over or clock.elapsed_s >= ends_s:
            return False
        before = messages.bound
        pool.raise_bound(messages.sweep(_SWEEPS))
        pool.offer(messages.decode()[0])
        if messages.bound < before + RISE * abs(before):
            return False
    return True


def offer_dive(pool: Incumbent, messages: Messages) -> None:
    """Offer what messages come to where each choice is told before the next is made.

    Not where memory counts, of which messages know nothing.
    """
    if pool.is_over or pool.memory.num_rows:
        return
    clock = pool.clock
    late_s = clock.elapsed_s + _FOR_DIVE * clock.left_s
    penalty = pool.reduced.penalty
    found = dive(messages, _DIVE_STEPS, penalty, lambda: clock.elapsed_s >= late_s)
    pool.offer(found)
