"""Search for the inlining decisions that make a unit's text smallest.

Small parts of a call graph are enumerated, which proves the optimum. Else rounds of flips
of one decision follow each other, from the compiler's own decisions and from none inlined;
the flips of a round that help are combined and checked.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from itertools import groupby

from meshwright.features.policies.compiler.replay import CallSite, Decisions
from meshwright.features.policies.compiler.tuning.call_graph import CallGraph

_MOST_VECTORS = 2**14
"""Decision vectors of a unit beyond which an enumeration is not begun."""


@dataclass(frozen=True, slots=True)
class Sized:
    """Text bytes of a unit under decisions, and the calls that were inlined."""

    text_bytes: int
    inlined: frozenset[CallSite]


@dataclass(frozen=True, slots=True)
class InliningState:
    """Decisions, who decides about other calls, and what comes of them."""

    decisions: Decisions
    fallback: str
    sized: Sized

    @property
    def size(self) -> int:
        """Text bytes of the unit."""
        return self.sized.text_bytes


SizeFn = Callable[[Decisions, str], Sized]
"""From decisions and the fallback of a replay to the unit's size."""


@dataclass(frozen=True, slots=True)
class Tuned:
    """The best decisions found for a unit.

    default_bytes: text bytes by the compiler's own decisions. is_optimal: whether an
        enumeration of all decisions proves that no others are smaller. is_complete:
        whether the search ended before its time did.
    """

    decisions: Decisions
    default_bytes: int
    text_bytes: int
    compilations: int
    is_optimal: bool
    is_complete: bool


@dataclass(slots=True)
class InliningSearch:
    """The search of one unit.

    size_fn: compiles; its calls may run at once. end_at: `time.monotonic()` at which the
        search ends.
    """

    graph: CallGraph
    size_fn: SizeFn
    pool: Executor
    end_at: float
    compilations: int = 0
    _known: dict[tuple[frozenset[tuple[CallSite, bool]], str], Sized] = field(
        default_factory=dict[tuple[frozenset[tuple[CallSite, bool]], str], Sized]
    )

    def run(self, start: Decisions) -> Tuned:
        """The best decisions; never worse than the compiler's own.

        start: decisions of an earlier search, from which this one goes on.
        """
        default = self._state({}, "Original")
        optimum = None if start else self._enumerated(default)
        begin = self._state(start, "Original") if start else default
        best = optimum or self._improved(begin)
        if optimum is None and time.monotonic() < self.end_at:
            never = self._state({}, "NeverInline")
            best = min(best, self._improved(never), key=lambda state: state.size)
        final = self._explicit(best)
        if final.size >= default.size:
            final = default
        return Tuned(
            final.decisions,
            default.size,
            final.size,
            self.compilations,
            optimum is not None and final.size <= optimum.size,
            time.monotonic() < self.end_at,
        )

    def _explicit(self, state: InliningState) -> InliningState:
        """A state with the same code and a decision for each call, for any fallback."""
        inlined = state.sized.inlined
        sites = self.graph.sites(inlined)
        decisions = dict.fromkeys(sites, False) | dict.fromkeys(inlined, True)
        return self._state(decisions, "Original")

    def _state(self, decisions: Decisions, fallback: str) -> InliningState:
        """A state that is compiled whatever the time."""
        return InliningState(decisions, fallback, self.size_fn(decisions, fallback))

    def _states(self, many: Sequence[Decisions], fallback: str) -> list[InliningState]:
        """States of several decisions, compiled at once; fewer if time is over."""
        keys = [(frozenset(each.items()), fallback) for each in many]
        jobs = {
            key: self.pool.submit(self._timely, each, fallback)
            for key, each in zip(keys, many, strict=True)
            if key not in self._known
        }
        for key, job in jobs.items():
            sized = job.result()
            if sized is not None:
                self._known[key] = sized
                self.compilations += 1
        return [
            InliningState(each, fallback, self._known[key])
            for key, each in zip(keys, many, strict=True)
            if key in self._known
        ]

    def _timely(self, decisions: Decisions, fallback: str) -> Sized | None:
        if time.monotonic() > self.end_at:
            return None
        return self.size_fn(decisions, fallback)

    # -- enumeration -------------------------------------------------------------------

    def _enumerated(self, default: InliningState) -> InliningState | None:
        """The optimum of all decisions, part by part; `None` if there are too many."""
        parts = self.graph.components()
        least = sum(
            2 ** sum(len(self.graph.calls[name]) for name in part) for part in parts
        )
        if least > _MOST_VECTORS:
            return None
        budget = _MOST_VECTORS
        chosen: set[CallSite] = set()
        gained = 0
        start = self._state(dict.fromkeys(default.sized.inlined, True), "NeverInline")
        if start.size != default.size:
            return None
        for part in parts:
            best, count = self._enumerate_part(part, start, budget)
            if best is None:
                return None
            budget -= count
            gained += start.size - best.size
            chosen |= {site for site in best.sized.inlined if self._is_in(site, part)}
        total = self._states([dict.fromkeys(chosen, True)], "NeverInline")
        # Parts that are independent add up; if they do not, nothing is proved.
        return total[0] if total and total[0].size == start.size - gained else None

    def _is_in(self, site: CallSite, part: frozenset[str]) -> bool:
        return self.graph.names.get(site.caller, site.caller) in part

    def _enumerate_part(
        self, part: frozenset[str], start: InliningState, budget: int
    ) -> tuple[InliningState | None, int]:
        """The best state of one part, with all others as in `start`."""
        others = [s for s in start.sized.inlined if not self._is_in(s, part)]
        front = self._states([dict.fromkeys(others, True)], "NeverInline")
        if not front:
            return None, 0
        seen = {front[0].sized.inlined}
        tried: set[frozenset[CallSite]] = set()
        best = min([start, *front], key=lambda state: state.size)
        while front:
            steps = {
                state.sized.inlined | {site}
                for state in front
                for site in self.graph.sites(state.sized.inlined) - state.sized.inlined
                if self._is_in(site, part)
            }
            new = [dict.fromkeys(step, True) for step in steps - tried]
            tried |= steps
            if len(tried) > budget or time.monotonic() > self.end_at:
                return None, len(tried)
            states = self._states(new, "NeverInline")
            if len(states) < len(new):
                return None, len(tried)
            by_code = {state.sized.inlined: state for state in states}
            front = [state for code, state in by_code.items() if code not in seen]
            seen |= by_code.keys()
            best = min([best, *front], key=lambda state: state.size)
        return best, len(tried)

    # -- rounds of flips ---------------------------------------------------------------

    def _improved(self, state: InliningState) -> InliningState:
        """A state that no single flip makes smaller, unless time is over."""
        state = self._round(state, by_callee=True)
        while time.monotonic() < self.end_at:
            better = self._round(state, by_callee=False)
            if better.size >= state.size:
                break
            state = better
        return state

    def _round(self, state: InliningState, *, by_callee: bool) -> InliningState:
        """The state after all flips that help, alone and together."""
        flips = self._flips(state, by_callee=by_callee)
        merged = [{**state.decisions, **flip} for flip in flips]
        tried = self._states(merged, state.fallback)
        by_decisions = {frozenset(each.decisions.items()): each.size for each in tried}
        gains: list[tuple[int, Decisions]] = []
        for flip in flips:
            key = frozenset({**state.decisions, **flip}.items())
            gain = state.size - by_decisions.get(key, state.size)
            if gain > 0:
                gains.append((gain, flip))
        gains.sort(key=lambda pair: -pair[0])
        return self._combined(state, gains)

    def _flips(self, state: InliningState, *, by_callee: bool) -> list[Decisions]:
        """The opposite of each decision, or of all decisions about one callee."""
        inlined = state.sized.inlined
        sites = sorted(self.graph.sites(inlined))
        if not by_callee:
            return [{site: site not in inlined} for site in sites]
        flips: list[Decisions] = []
        for _, group in groupby(sites, key=lambda site: site.callee):
            members = tuple(group)
            flips += [
                dict.fromkeys(members, yes)
                for yes in (True, False)
                if len(members) > 1 and any((m in inlined) != yes for m in members)
            ]
        return flips

    def _combined(
        self, state: InliningState, gains: Sequence[tuple[int, Decisions]]
    ) -> InliningState:
        """The state after flips together; halves of them if they disturb each other."""
        if not gains:
            return state
        joined = _merged(flip for _, flip in gains)
        done = self._states([{**state.decisions, **joined}], state.fallback)
        if not done:
            return state
        hoped = sum(gain for gain, _ in gains)
        if done[0].size <= state.size - hoped:
            return done[0]
        if len(gains) == 1:
            return min(state, done[0], key=lambda each: each.size)
        half = len(gains) // 2
        parts = self._combined(state, gains[:half])
        parts = self._combined(parts, gains[half:])
        return min(parts, done[0], key=lambda each: each.size)


def _merged(flips: Iterable[Decisions]) -> dict[CallSite, bool]:
    """Decisions of several flips; of two about one call the first one's."""
    joined: dict[CallSite, bool] = {}
    for flip in flips:
        joined = {**flip, **joined}
    return joined
