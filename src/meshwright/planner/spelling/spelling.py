"""A found plan written as people would write it: a short list of ordinary tactics.

A found plan says of every node how it is sharded. Most of that follows by propagation
from a few cuts. These are searched for on a reduced graph, in which equal layers are one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from meshwright.partitioner.tactics import Tactic, Workspace
from meshwright.planner.candidates.candidate import Candidate
from meshwright.planner.candidates.search_result import Spelling
from meshwright.planner.solve.space import Space
from meshwright.planner.spelling.cut_list import find_cuts
from meshwright.planner.spelling.plan_matcher import PlanMatcher
from meshwright.planner.spelling.site_graph import build_site_graph
from meshwright.planner.spelling.tactic_patterns import tactics_as_code, write_tactics

_AS_GOOD = 1.01
"""Time and memory, relative to the found plan, at which no other list is tried."""


def spellings(
    found: Workspace, start: Workspace, clock: Callable[[], float], until: float
) -> Iterator[tuple[Tactic, ...]]:
    """Lists of tactics that propagate to nearly all decisions of a found plan.

    Where they differ, propagation is more regular than the plan; a simulation shows
    whether that costs anything. start: the same graph before any decision of the search.
    clock, until: seconds; at `until` the best list so far is taken.
    """
    matcher = PlanMatcher(found, start, build_site_graph(found), clock, until)
    for steps in find_cuts(matcher):
        yield write_tactics(matcher, steps)


def spell(
    space: Space,
    found: Candidate,
    simulate: Callable[[Sequence[Tactic]], Candidate],
    order: Callable[[Candidate], tuple[float, ...]],
    clock: Callable[[], float],
    until: float,
) -> Spelling | None:
    """The best list of tactics for a found plan, simulated; `None` if none in time.

    simulate: the candidate of tactics on the plan's mesh. order: a sort key, best first.
    """
    start, work = space.start(found.mesh), space.start(found.mesh)
    for tactic in found.tactics[len(space.given) :]:
        tactic.apply(work)
    best: Candidate | None = None
    for tactics in spellings(work, start, clock, until):
        if clock() >= until:  # a list that was cut short is unlike the plan
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
        best.tactics,
        tactics_as_code(best.tactics),
        best.step_time_s,
        best.peak_memory_bytes,
    )
