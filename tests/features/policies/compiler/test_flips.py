"""Changes of inlining decisions, and the search that tries them, on a modelled compiler."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from meshwright.features.policies.compiler.replay import CallSite, Decisions
from meshwright.features.policies.compiler.tuning.call_graph import CallGraph
from meshwright.features.policies.compiler.tuning.flips import (
    Flip,
    batches_of,
    crossing_flips,
    nested_flips,
    pair_flips,
    single_flips,
)
from meshwright.features.policies.compiler.tuning.search import InliningSearch, Tuned
from meshwright.features.policies.compiler.tuning.states import Sized


def call(place: str, callee: str) -> CallSite:
    return CallSite(callee, (f"{place}:1:1",))


F_G, E_G, G_H = call("f", "g"), call("e", "g"), call("g", "h")
F_H = CallSite("h", (*G_H.places, *F_G.places))
"""The call of h in f that inlining g there brings."""
E_H = CallSite("h", (*G_H.places, *E_G.places))
NAMES = {name: name for name in "efgh"}
GRAPH = CallGraph(
    {"e": (E_G,), "f": (F_G,), "g": (G_H,), "h": ()},
    NAMES,
    dict.fromkeys("efgh", 1),
    frozenset("gh"),
)

Bytes = Callable[[str, frozenset[CallSite]], int]


def searched(
    bytes_of: Bytes,
    *,
    seconds: float = 60,
    start: Decisions | None = None,
    stages: int = 0,
    graph: CallGraph = GRAPH,
) -> Tuned:
    """A search whose compiler inlines nothing by itself, and makes these bytes."""

    def size(decisions: Decisions, fallback: str, by_function: bool) -> Sized:
        wanted = {site for site, yes in decisions.items() if yes}
        inlined = frozenset(wanted & graph.sites(frozenset(wanted)))
        functions = {name: bytes_of(name, inlined) for name in graph.calls}
        return Sized(sum(functions.values()), inlined, functions if by_function else {})

    with ThreadPoolExecutor(2) as pool:
        search = InliningSearch(graph, size, pool, time.monotonic() + seconds)
        return search.run(start or {}, stages)


def only_together(name: str, inlined: frozenset[CallSite]) -> int:
    """g in f costs 4 bytes, and saves 5 if h is inlined there as well."""
    if name == "f" and F_G in inlined:
        return 95 if F_H in inlined else 104
    return 100


def test_a_call_is_tried_with_those_that_it_brings() -> None:
    tuned = searched(only_together)
    assert (tuned.default_bytes, tuned.text_bytes) == (400, 395)
    assert tuned.decisions[F_G]
    assert tuned.decisions[F_H]
    assert tuned.is_complete
    flips = [flip.decisions for flip in nested_flips(GRAPH, frozenset())]
    assert {F_G: True, F_H: True} in flips
    assert {F_G: True, F_H: False} in flips
    inside = [flip.decisions for flip in nested_flips(GRAPH, frozenset({F_G, F_H}))]
    assert {F_G: True, F_H: False} in inside
    assert {F_G: True, F_H: True} not in inside


def test_only_callees_that_may_go_count_as_changed() -> None:
    """One of two calls of g leaves g as it is, so that both are measured at once."""
    by_call = {
        next(iter(flip.decisions)): flip for flip in single_flips(GRAPH, frozenset())
    }
    assert by_call[F_G].changed == {"f"}
    assert by_call[G_H].changed == {"g", "h"}
    assert len(batches_of([by_call[F_G], by_call[E_G], by_call[G_H]])) == 1
    last = {
        next(iter(flip.decisions)): flip
        for flip in single_flips(GRAPH, frozenset({E_G}))
    }
    assert last[F_G].changed == {"f", "g"}
    assert last[G_H].changed == {"g", "e"}  # e has a call of h, too


def test_functions_of_two_states_are_exchanged() -> None:
    flips = crossing_flips(GRAPH, frozenset({F_G}), frozenset({E_G, E_H}))
    assert [flip.decisions for flip in flips] == [
        {E_G: True, E_H: True},
        {F_G: False, F_H: False},
    ]


def test_pairs_are_of_flips_that_cost_little_and_meet() -> None:
    def flip(site: CallSite, *changed: str) -> Flip:
        return Flip({site: True}, frozenset(changed))

    gains = [
        (-9, flip(E_G, "e", "f")),
        (-2, flip(F_G, "f")),
        (-3, flip(F_H, "f")),
        (0, flip(G_H, "f")),
        (-1, flip(E_H, "e")),
    ]
    found = [set(pair.decisions) for pair in pair_flips(gains, 9)]
    assert found == [{F_G, F_H}, {E_G, E_H}, {E_G, F_G}, {E_G, F_H}]
    assert len(pair_flips(gains, 2)) == 2


def test_two_calls_that_cost_alone_are_inlined_together() -> None:
    """Two callees without calls: no flip of a kind decides about both."""
    both = (call("f", "g"), CallSite("h", ("f:2:1",)))
    graph = CallGraph({"f": both, "g": (), "h": ()}, NAMES, {})

    def bytes_of(name: str, inlined: frozenset[CallSite]) -> int:
        return 100 + (0, 2, -5)[len(inlined)] if name == "f" and inlined else 100

    tuned = searched(bytes_of, graph=graph)
    assert tuned.text_bytes == 295
    assert tuned.compilations < 20


def test_a_search_goes_on_with_the_stage_that_it_was_in() -> None:
    over = searched(only_together, seconds=-1)
    assert (over.stages, over.is_complete, over.text_bytes) == (0, False, 400)
    whole = searched(only_together, start=over.decisions, stages=over.stages)
    assert (whole.stages, whole.is_complete, whole.text_bytes) == (4, True, 395)
    again = searched(only_together, start=whole.decisions, stages=whole.stages)
    assert again.text_bytes == 395
    assert again.compilations < whole.compilations
