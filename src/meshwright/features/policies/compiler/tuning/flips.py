"""Changes of a few decisions, and which functions each of them changes.

A compilation that decides several calls otherwise tells what each of them gains, if no
function is changed by two of them: then the bytes of its functions are its own.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from meshwright.features.policies.compiler.replay import CallSite, Decisions
from meshwright.features.policies.compiler.tuning.call_graph import CallGraph


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
    hosts = _hosts(graph, inlined)
    return [
        Flip({site: site not in inlined}, _changed(graph, hosts, [site]))
        for site in sorted(graph.sites(inlined))
    ]


def callee_flips(graph: CallGraph, inlined: frozenset[CallSite]) -> list[Flip]:
    """All decisions about one callee alike, where that changes some."""
    hosts = _hosts(graph, inlined)
    flips: list[Flip] = []
    sites = sorted(graph.sites(inlined))
    for _, group in groupby(sites, key=lambda site: site.callee):
        members = tuple(group)
        changed = _changed(graph, hosts, members)
        flips += [
            Flip(dict.fromkeys(members, yes), changed)
            for yes in (True, False)
            if len(members) > 1 and any((m in inlined) != yes for m in members)
        ]
    return flips


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


def _changed(
    graph: CallGraph, hosts: Mapping[str, set[str]], sites: Sequence[CallSite]
) -> frozenset[str]:
    """Functions whose code depends on decisions about these calls.

    These are the callers, the functions that contain their code, and the callees, which
    are removed after their last call.
    """
    changed: set[str] = set()
    todo = [graph.names.get(site.caller, site.caller) for site in sites]
    while todo:
        name = todo.pop()
        if name not in changed:
            changed.add(name)
            todo += hosts.get(name, ())
    return frozenset(changed | {site.callee for site in sites})


def _hosts(graph: CallGraph, inlined: frozenset[CallSite]) -> Mapping[str, set[str]]:
    """Functions that contain the code of others, by those."""
    hosts: defaultdict[str, set[str]] = defaultdict(set)
    for site in inlined:
        hosts[site.callee].add(graph.names.get(site.caller, site.caller))
    return hosts
