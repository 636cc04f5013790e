"""A found plan as people would write it: a short list of ordinary tactics.

What is found says of every node how it is cut. Most of that follows from a few cuts, as
tactics propagate; the few are searched for on a small graph, in which layers are one.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from meshwright.autoplan.compose import compose
from meshwright.autoplan.imitate import Imitation
from meshwright.autoplan.phrase import phrase
from meshwright.autoplan.quotient import quotient_of
from meshwright.plan.decide import Decided, start_workspace
from meshwright.tactics import Tactic


def spell(
    found: Decided,
    clock: Callable[[], float] = time.monotonic,
    until: float = float("inf"),
) -> tuple[Tactic, ...]:
    """Tactics that, applied in order, decide nearly all that was found.

    What they decide otherwise is what propagation makes regular; a simulation says
    whether it is the worse for it. clock: seconds; what is tried when it reads `until`
    is the answer.
    """
    work = found.work
    start = start_workspace(found.captured, work.mesh, work.graph)
    imitation = Imitation(work, start, quotient_of(work), clock, until)
    return phrase(imitation, compose(imitation))
