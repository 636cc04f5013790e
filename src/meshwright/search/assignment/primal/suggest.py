"""Message passing in rounds, which offers the solutions that the messages decode to."""

from __future__ import annotations

from meshwright.search.arrays import Floats
from meshwright.search.assignment.bounds.messages import Messages
from meshwright.search.assignment.incumbent.incumbent import Incumbent
from meshwright.search.assignment.incumbent.solution import SolveOptions
from meshwright.search.assignment.primal.dive import dive
from meshwright.search.assignment.problem.cost_graph import finite_graph

_SWEEPS, _MAX_ROUNDS = 10, 200
"""Sweeps of a round, and limit on rounds where `SolveOptions.rounds` gives none."""

MIN_RISE = 2e-4
"""Relative rise of the bound in a round below which it is taken to have converged."""

_MESSAGE_SHARE, _MESSAGE_SHARE_BY_ROUNDS = 0.2, 0.5
"""Share of the time left for message passing, without and with a limit on rounds."""

_DIVE_STEPS, _DIVE_SHARE = 300, 0.6
"""Steps of a dive, and the share of the time left after which it hurries. With 100 steps
EfficientNet on 16 by 4 H100 comes out 5 to 76 % slower, after 10 to 40 rounds."""


def messages_of(incumbent: Incumbent, values: Floats | None = None) -> Messages:
    """Message passing on the problem of an incumbent, from given messages if any."""
    graph = finite_graph(incumbent.reduced, incumbent.reduced.penalty)
    return Messages(graph, incumbent.reduced.costs, values)


def num_message_rounds(options: SolveOptions) -> int:
    """Limit on the rounds of message passing."""
    return _MAX_ROUNDS if options.rounds is None else options.rounds


def pass_messages(incumbent: Incumbent, messages: Messages, rounds: int) -> bool:
    """Pass messages in rounds while they raise the bound, and offer what they decode to.

    A share of the time ends this too; with a limit on rounds it is seldom reached, and
    the result is the same on each run. Returns whether the bound was still rising at the
    end of the last round.
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
        incumbent.offer(messages.decode()[0])
        if messages.bound < before + MIN_RISE * abs(before):
            return False
    return True


def offer_dive(incumbent: Incumbent, messages: Messages) -> None:
    """Offer the solution of a dive, unless memory binds, which messages do not count."""
    if incumbent.is_over or incumbent.memory.num_rows:
        return
    clock = incumbent.clock
    late_s = clock.elapsed_s + _DIVE_SHARE * clock.left_s
    penalty = incumbent.reduced.penalty
    found = dive(messages, _DIVE_STEPS, penalty, lambda: clock.elapsed_s >= late_s)
    incumbent.offer(found)
