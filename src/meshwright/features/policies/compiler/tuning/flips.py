"""Changes of a few decisions, and which functions each of them changes.

A compilation that decides several calls otherwise tells what each of them gains, if no
function is changed by two of them: then the bytes of its functions are its own.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from meshwright.features.policies.compiler.replay import CallSite, Decisions
from meshwright.features.policies.compiler.tuning.call_graph import (
    CallGraph,
    within,
)


@dataclass(frozen=True, slots=True)
class Flip:
    """New decisions, and the symbols of the functions that they change."""

    decisions: Decisions
    changed: frozenset[str]

    def gain(self, before: Mapping[str, int], after: Mapping[str, int]) -> int:
        """Bytes that the changed functions lose, by the bytes of each function."""
        return sum(before.get(n, 0) - after.get(n, 0) for n in self.changed)


def single_flips(graph: CallGraph, inlined: frozenset[CallSite]) -> list[Flip]:
    """The opposite of each decision."""
    code = _Code(graph, inlined)
    return [
        Flip({site: site not in inlined}, code.changed([site]))
        for site in sorted(code.sites)
    ]


def callee_flips(graph: CallGraph, inlined: frozenset[CallSite]) -> list[Flip]:
    """All decisions about one callee alike, where that changes some."""
    code = _Code(graph, inlined)
    flips: list[Flip] = []
    for _, group in groupby(sorted(code.sites), key=lambda site: site.callee):
        members = tuple(group)
        changed = code.changed(members)
        flips += [
            Flip(dict.fromkeys(members, yes), changed)
            for yes in (True, False)
            if len(members) > 1 and any((m in inlined) != yes for m in members)
        ]
    return flips


def nested_flips(graph: CallGraph, inlined: frozenset[CallSite]) -> list[Flip]:
    """Each call inlined, and all calls that this brings inlined, or none of them."""
    code = _Code(graph, inlined)
    left = graph.left(inlined)
    flips: list[Flip] = []
    for site in sorted(code.sites):
        if site in inlined:
            brought = [each for each in code.sites if _is_within(each, site)]
        else:
            brought = [within(each, site) for each in left.get(site.callee, ())]
        for yes in (True, False):
            decisions = {site: True, **dict.fromkeys(brought, yes)}
            if brought and any(
                (each in inlined) != decisions[each] for each in decisions
            ):
                flips.append(Flip(decisions, code.changed([site, *brought])))
    return flips


def crossing_flips(
    graph: CallGraph, inlined: frozenset[CallSite], other: frozenset[CallSite]
) -> list[Flip]:
    """Decisions of another state about the calls in one function, for each function."""
    code = _Code(graph, inlined)
    flips: list[Flip] = []
    known = sorted(code.sites | graph.sites(other), key=lambda site: site.caller)
    for _, group in groupby(known, key=lambda site: site.caller):
        members = tuple(group)
        if any((each in inlined) != (each in other) for each in members):
            decisions = {each: each in other for each in members}
            flips.append(Flip(decisions, code.changed(members)))
    return flips


def pair_flips(gains: Sequence[tuple[int, Flip]], most: int) -> list[Flip]:
    """Two flips at once that each cost little: those that cost least together first.

    Only flips that change a function in common are paired: gains of others add up.
    Flips that change no byte are left out; most of them are about code that is gone.
    """
    near = sorted((p for p in gains if p[0] < 0), key=lambda pair: -pair[0])[:_NEAR]
    found = [
        (one[0] + other[0], Flip({**one[1].decisions, **other[1].decisions}, changed))
        for i, one in enumerate(near)
        for other in near[:i]
        if one[1].changed & other[1].changed
        for changed in [one[1].changed | other[1].changed]
    ]
    return [flip for _, flip in sorted(found, key=lambda pair: -pair[0])[:most]]


_NEAR = 200
"""Flips of which pairs are made: those that cost least."""


def batches_of(flips: Sequence[Flip]) -> list[list[Flip]]:
    """Flips in groups, within which no function is changed twice."""
    batches: list[tuple[list[Flip], set[str]]] = []
    for flip in sorted(flips, key=lambda flip: -len(flip.changed)):
        free = (each for each in batches if not flip.changed & each[1])
        members, changed = next(free, (None, None))
        if members is None or changed is None:
            members, changed = list[Flip](), set[str]()
            batches.append((members, changed))
        members.append(flip)
        changed |= flip.changed
    return [members for members, _ in batches]


class _Code:
    """Functions whose code depends on decisions about calls, in one state.

    sites: the calls about which a compilation decides.
    """

    def __init__(self, graph: CallGraph, inlined: frozenset[CallSite]) -> None:
        self.graph = graph
        self.sites = graph.sites(inlined)
        self._calls = Counter(s.callee for s in self.sites if s not in inlined)
        self._hosts: defaultdict[str, set[str]] = defaultdict(set)
        for site in inlined:
            caller = graph.names.get(site.caller, site.caller)
            self._hosts[site.callee].add(caller)

    def changed(self, sites: Sequence[CallSite]) -> frozenset[str]:
        """Functions whose code depends on decisions about these calls.

        These are the callers, the functions that contain their code, and callees that
        these decisions can remove or bring back, since few other calls are left.
        """
        changed: set[str] = set()
        todo = [self.graph.names.get(site.caller, site.caller) for site in sites]
        while todo:
            name = todo.pop()
            if name not in changed:
                changed.add(name)
                todo += self._hosts.get(name, ())
        callees = Counter(site.callee for site in sites)
        return frozenset(changed) | {
            name
            for name, number in callees.items()
            if name in self.graph.internal and self._calls[name] <= number
        }


def _is_within(site: CallSite, outer: CallSite) -> bool:
    """Whether a call came to where it is by inlining another one."""
    depth = len(outer.places)
    return len(site.places) > depth and site.places[-depth:] == outer.places
