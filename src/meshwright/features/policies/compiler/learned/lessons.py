"""Lessons of units: features of decisions, and the bytes that inlining saved there."""

import zipfile
from collections import defaultdict
from collections.abc import Collection, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from meshwright.errors import PolicyError
from meshwright.features.policies.compiler.channel import Advise
from meshwright.features.policies.compiler.compiler import ClangCompiler
from meshwright.features.policies.compiler.learned.trace import (
    TracedCall,
    trace_inlining,
)
from meshwright.features.policies.compiler.replay import CallSite
from meshwright.features.policies.compiler.savings import CallPlace, read_savings
from meshwright.features.policies.compiler.tuning.call_graph import CallGraph
from meshwright.features.policies.compiler.tuning.prepared import PreparedUnit

MOST_COMPILATIONS = 16
"""Compilations by which the calls of one unit are measured; jsoncpp's four files have
2,375 decisions, and many small projects teach more than each call of one large unit."""


@dataclass(frozen=True, slots=True, eq=False)
class InliningLessons:
    """Decisions of one unit, each with what the opposite would change.

    Letters: N decisions, F features. names: of the features. features: [N, F].
    saved_bytes: [N], bytes that inlining saves, with all other calls as they are.
    defaults: [N], whether the compiler's heuristic inlines. text_bytes: of the unit.
    """

    names: tuple[str, ...]
    features: NDArray[np.int64]
    saved_bytes: NDArray[np.float32]
    defaults: NDArray[np.bool_]
    text_bytes: int

    def save(self, path: Path) -> None:
        """Write the lessons to a file, all at once."""
        part = path.with_suffix(".part")
        with part.open("wb") as file:
            np.savez_compressed(
                file,
                names=np.array(self.names),
                features=self.features,
                saved_bytes=self.saved_bytes,
                defaults=self.defaults,
                text_bytes=np.array(self.text_bytes),
            )
        part.replace(path)


def read_lessons(path: Path) -> InliningLessons:
    """The lessons that `InliningLessons.save` wrote."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return InliningLessons(
                tuple(str(name) for name in arrays["names"]),
                arrays["features"],
                arrays["saved_bytes"],
                arrays["defaults"],
                int(arrays["text_bytes"]),
            )
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as fault:
        raise PolicyError(
            f"{path} has no lessons of a training ({fault}); remove it"
        ) from None


def default_lessons(
    job: PreparedUnit,
    compiler: ClangCompiler,
    pool: Executor,
    end_at: float,
    savings: Path | None = None,
    most: int = MOST_COMPILATIONS,
) -> InliningLessons:
    """Lessons at the compiler's own decisions.

    savings: a file of `policies tune`, which has measured them already. most:
        compilations for one unit, of which each measures many calls.
    """
    made, calls = _traced(compiler, job, lambda call: call.default)
    if savings is not None and savings.exists():
        return _joined(calls, read_savings(savings), made)
    search = job.search(compiler, pool, end_at)
    state = search.explicit(search.compilations.state({}, "Original"))
    return _joined(calls, _by_place(job.graph, search.savings(state, most)), made)


def policy_lessons(
    job: PreparedUnit,
    compiler: ClangCompiler,
    pool: Executor,
    end_at: float,
    policy: Advise,
    most: int = MOST_COMPILATIONS,
) -> InliningLessons | None:
    """Lessons at a policy's decisions; `None` if a replay does not give its object."""
    made, calls = _traced(compiler, job, policy)
    inlined = inlined_at(job.graph, {c.place for c in calls if c.is_inlined})
    search = job.search(compiler, pool, end_at)
    state = search.compilations.state(dict.fromkeys(inlined, True), "NeverInline")
    if state.size != made:
        return None
    savings = search.savings(search.explicit(state), most)
    return _joined(calls, _by_place(job.graph, savings), made)


def inlined_at(graph: CallGraph, places: Collection[CallPlace]) -> frozenset[CallSite]:
    """The calls at these places, with those that inlining brings to one of them."""
    inlined: frozenset[CallSite] = frozenset()
    while True:
        sites = graph.sites(inlined)
        more = inlined | {site for site in sites if graph.place(site) in places}
        if more == inlined:
            return inlined
        inlined = more


def _traced(
    compiler: ClangCompiler, job: PreparedUnit, advise: Advise
) -> tuple[int, list[TracedCall]]:
    """Text bytes of a unit under a policy, and its decisions."""
    made, calls = trace_inlining(compiler, job.unit, advise)
    if made.fault:
        raise PolicyError(f"{job.unit.name} gave no decisions: {made.fault}")
    return made.text_bytes, calls


def _by_place(
    graph: CallGraph, savings: Mapping[CallSite, int]
) -> Mapping[CallPlace, int]:
    """Saved bytes by place, without places of which copies save otherwise."""
    found: defaultdict[CallPlace, set[int]] = defaultdict(set)
    for site, saved in savings.items():
        found[graph.place(site)].add(saved)
    return {place: min(each) for place, each in found.items() if len(each) == 1}


def _joined(
    calls: list[TracedCall], savings: Mapping[CallPlace, int], text_bytes: int
) -> InliningLessons:
    """Lessons of the traced decisions whose savings are known."""
    known = [call for call in calls if call.place in savings]
    names = tuple(sorted(known[0].features)) if known else ()
    rows = [[call.features[name] for name in names] for call in known]
    return InliningLessons(
        names,
        np.array(rows, np.int64).reshape(len(known), len(names)),
        np.array([savings[call.place] for call in known], np.float32),
        np.array([call.features["inlining_default"] for call in known], np.bool_),
        text_bytes,
    )
