"""The least text of a unit, proved by enumeration of each part of its call graph."""

from meshwright.features.policies.compiler.replay import CallSite
from meshwright.features.policies.compiler.tuning.call_graph import CallGraph
from meshwright.features.policies.compiler.tuning.states import (
    Compilations,
    InliningState,
)

MOST_VECTORS = 2**14
"""Decision vectors of a unit beyond which an enumeration is not begun."""


def fewest_vectors(graph: CallGraph) -> int:
    """Decision vectors of all parts, without those of calls that inlining copies."""
    parts = graph.components()
    return sum(2 ** sum(len(graph.calls[name]) for name in part) for part in parts)


def least_state(
    graph: CallGraph, compilations: Compilations, default: InliningState
) -> InliningState | None:
    """The optimum of all decisions, part by part; `None` if there are too many."""
    if fewest_vectors(graph) > MOST_VECTORS:
        return None
    budget = MOST_VECTORS
    chosen: set[CallSite] = set()
    gained = 0
    every = dict.fromkeys(default.sized.inlined, True)
    start = compilations.state(every, "NeverInline")
    if start.size != default.size:
        return None
    for part in graph.components():
        best, count = _least_of_part((graph, part), compilations, start, budget)
        if best is None:
            return None
        budget -= count
        gained += start.size - best.size
        chosen |= {s for s in best.sized.inlined if graph.is_in(s, part)}
    total = compilations.states([dict.fromkeys(chosen, True)], "NeverInline")
    # Parts that are independent add up; if they do not, nothing is proved.
    return total[0] if total and total[0].size == start.size - gained else None


def _least_of_part(
    where: tuple[CallGraph, frozenset[str]],
    compilations: Compilations,
    start: InliningState,
    budget: int,
) -> tuple[InliningState | None, int]:
    """The best state of one part, with all others as in `start`."""
    graph, part = where
    others = [s for s in start.sized.inlined if not graph.is_in(s, part)]
    front = compilations.states([dict.fromkeys(others, True)], "NeverInline")
    if not front:
        return None, 0
    seen = {front[0].sized.inlined}
    tried: set[frozenset[CallSite]] = set()
    best = min([start, *front], key=lambda state: state.size)
    while front:
        steps = {
            state.sized.inlined | {site}
            for state in front
            for site in graph.sites(state.sized.inlined) - state.sized.inlined
            if graph.is_in(site, part)
        }
        new = [dict.fromkeys(step, True) for step in steps - tried]
        tried |= steps
        if len(tried) > budget or compilations.is_over:
            return None, len(tried)
        states = compilations.states(new, "NeverInline")
        if len(states) < len(new):
            return None, len(tried)
        by_code = {state.sized.inlined: state for state in states}
        front = [state for code, state in by_code.items() if code not in seen]
        seen |= by_code.keys()
        best = min([best, *front], key=lambda state: state.size)
    return best, len(tried)
