"""A found plan as people would write it: a short list of ordinary tactics.

What is found says of every node how it is cut. Most of that follows from a few cuts, as
tactics propagate; the few are searched for on a small graph, in which layers are one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from meshwright.partitioner.tactics import Tactic, Workspace
from meshwright.planner.candidates.candidate import Candidate
from meshwright.planner.candidates.search_result import Spelling
from meshwright.planner.solve.space import Space
from meshwright.planner.spelling.compose import compose
from meshwright.planner.spelling.imitate import Imitation
from meshwright.planner.spelling.phrase import code_of, phrase
from meshwright.planner.spelling.reduced_graph import quotient_of

_AS_GOOD = 1.01
"""As long as this a step may take, beside the found one, for the first try to do."""


def spellings(
    found: Workspace, start: Workspace, clock: Callable[[], float], until: float
) -> Iterator[tuple[Tactic, ...]]:
    """Lists of tactics that, applied in order, decide nearly all that was found.

    What they decide otherwise is what propagation makes regular; a simulation says
    whether it is the worse for it. start: the same graph before anything was decided.
    clock: seconds; when it reads `until`, what was tried by then is the answer.
    """
    imitation = Imitation(found, start, quotient_of(found), clock, until)
    for steps in compose(imitation):
        yield phrase(imitation, steps)


def spell(
    space: Space,
    found: Candidate,
    simulate: Callable[[Sequence[Tactic]], Candidate],
    order: Callable[[Candidate], tuple[float, ...]],
    clock: Callable[[], float],
    until: float,
) -> Spelling | None:
    """The best of a plan's spellings, simulated; None if none of them runs in time.

    simulate: what tactics come to on the plan's mesh. order: the smaller the better.
    """
    start, work = space.start(found.mesh), space.start(found.mesh)
    for tactic in found.tactics[len(space.given) :]:
        tactic.apply(work)
    best: Candidate | None = None
    for tactics in spellings(work, start, clock, until):
        if clock() >= until:  # what is composed in haste is hardly the plan
            break
        tried = simulate(tactics)
        if tried.why_not:
            continue
        if best is None or order(tried) < order(best):
            best = tried
        is_small = best.peak_memory_bytes <= _AS_GOOD * found.peak_memory_bytes
        if is_small and best.step_time_s <= _AS_GOOD * found.step_time_s:
            break
    return best and Spelling(
        best.tactics, code_of(best.tactics), best.step_time_s, best.peak_memory_bytes
    )
