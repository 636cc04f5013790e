"""Search for the inlining decisions that make a unit's text smallest.

Rounds of flips of one or of related decisions follow each other, from the compiler's own
decisions and from none inlined, and functions of the two are exchanged. One compilation
measures many flips, function by function; those that help are combined and checked. Then
come pairs of flips that cost little each, and rounds that compile each flip alone. Small
call graphs are enumerated, which proves the optimum.
"""

from collections.abc import Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from itertools import cycle

from meshwright.features.policies.compiler.replay import CallSite, Decisions
from meshwright.features.policies.compiler.tuning.call_graph import CallGraph
from meshwright.features.policies.compiler.tuning.enumeration import (
    MOST_VECTORS,
    fewest_vectors,
    least_state,
)
from meshwright.features.policies.compiler.tuning.flips import (
    Flip,
    batches_of,
    callee_flips,
    crossing_flips,
    nested_flips,
    pair_flips,
    single_flips,
)
from meshwright.features.policies.compiler.tuning.states import (
    Compilations,
    InliningState,
    SizeFn,
)

_HOPED = 0.75
"""Share of the sum of gains that flips together must reach to be taken as they are."""

_KINDS = 3
"""Rounds without a gain, one of each kind of flips, after which a state is left."""

_PAIRS = 3
"""Pairs of flips that are tried, by single flips of a state."""


@dataclass(frozen=True, slots=True)
class Tuned:
    """The best decisions found for a unit.

    default_bytes: text bytes by the compiler's own decisions. is_optimal: whether an
        enumeration of all decisions proves that no others are smaller. is_complete:
        whether the search ended before its time did. stages: those that it has ended.
    saved_bytes: by call that the compiler's own decisions leave, the bytes that inlining
        it saves if all others stay: what a policy learns from.
    """

    decisions: Decisions
    default_bytes: int
    text_bytes: int
    compilations: int
    is_optimal: bool
    is_complete: bool
    stages: int
    saved_bytes: dict[CallSite, int] = field(default_factory=dict[CallSite, int])


class InliningSearch:
    """The search of one unit.

    size_fn: compiles; its calls may run at once. end_at: `time.monotonic()` at which the
        search ends.
    """

    def __init__(
        self, graph: CallGraph, size_fn: SizeFn, pool: Executor, end_at: float
    ) -> None:
        self.graph = graph
        self.compilations = Compilations(size_fn, pool, end_at)
        self._saved: dict[CallSite, int] = {}

    def run(self, start: Decisions, stages: int = 0) -> Tuned:
        """The best decisions; never worse than the compiler's own.

        start, stages: decisions of an earlier search, and the stages that it has ended;
            this one goes on from them.
        """
        compilations = self.compilations
        default = compilations.state({}, "Original")
        best = compilations.state(start, "Original") if start else default
        for stage in (self._first, self._crossed, self._paired, self._polished)[
            stages:
        ]:
            best = stage(best)
            if compilations.is_over:
                break
            stages += 1
        optimum, is_complete = None, False
        if not compilations.is_over:
            optimum, is_complete = self._enumerated(default)
        if optimum is not None and optimum.size < best.size:
            best = optimum
        final = self.explicit(best)
        if final.size >= default.size:
            final = default
        return Tuned(
            final.decisions,
            default.size,
            final.size,
            compilations.number,
            optimum is not None and final.size <= optimum.size,
            is_complete,
            stages,
            self._saved,
        )

    def savings(self, state: InliningState, most: int) -> dict[CallSite, int]:
        """Bytes that inlining each call of a state saves if all others stay.

        most: compilations, beyond which the calls of the fullest batches are measured.
        """
        flips = single_flips(self.graph, state.sized.inlined)
        batches = sorted(batches_of(flips), key=len, reverse=True)[:most]
        measured = [flip for batch in batches for flip in batch]
        return _saved_bytes(self._gains_by_function(state, measured))

    def explicit(self, state: InliningState) -> InliningState:
        """A state with the same code and a decision for each call, for any fallback."""
        inlined = state.sized.inlined
        sites = self.graph.sites(inlined)
        decisions = dict.fromkeys(sites, False) | dict.fromkeys(inlined, True)
        return self.compilations.state(decisions, "Original")

    def _improved(
        self, state: InliningState, *, is_default: bool = False
    ) -> InliningState:
        """A state that no flip makes smaller, as far as functions show it."""
        explicit = self.explicit(state)
        if explicit.size <= state.size:
            state = explicit
        kinds = cycle((single_flips, callee_flips, nested_flips))
        stalled = 0
        while stalled < _KINDS and not self.compilations.is_over:
            flips = next(kinds)(self.graph, state.sized.inlined)
            gains = self._gains_by_function(state, flips)
            if is_default:
                self._saved = _saved_bytes(gains)
            better = self._combined(state, _helpful(gains))
            stalled = 0 if better.size < state.size else stalled + 1
            state, is_default = better, False
        return state

    def _first(self, state: InliningState) -> InliningState:
        """A state that no flip makes smaller, from the compiler's own or an earlier one."""
        return self._improved(state, is_default=not state.decisions)

    def _enumerated(self, default: InliningState) -> tuple[InliningState | None, bool]:
        """The optimum, if it can be had, and whether more time would not help."""
        vectors = fewest_vectors(self.graph)
        if vectors > MOST_VECTORS:
            return None, True
        if not self.compilations.has_time_for(vectors):
            return None, False
        optimum = least_state(self.graph, self.compilations, default)
        return optimum, not self.compilations.is_over

    def _crossed(self, state: InliningState) -> InliningState:
        """The best of a state, what comes of none inlined, and functions of both."""
        none = self._improved(self.compilations.state({}, "NeverInline"))
        best, other = sorted([state, self.explicit(none)], key=lambda each: each.size)
        best = self.explicit(best)
        flips = crossing_flips(self.graph, best.sized.inlined, other.sized.inlined)
        better = self._combined(best, _helpful(self._gains_by_function(best, flips)))
        return self._improved(better) if better.size < best.size else best

    def _paired(self, state: InliningState) -> InliningState:
        """A state that none of the pairs of flips makes smaller that cost little each."""
        while not self.compilations.is_over:
            flips = single_flips(self.graph, state.sized.inlined)
            gains = self._gains_by_function(state, flips)
            pairs = pair_flips(gains, _PAIRS * len(flips))
            found = _helpful([*gains, *self._gains_by_function(state, pairs)])
            better = self._combined(state, found)
            if better.size >= state.size:
                break
            state = self._improved(better)
        return state

    def _polished(self, state: InliningState) -> InliningState:
        """A state that no single flip makes smaller, unless time is over."""
        while not self.compilations.is_over:
            flips = single_flips(self.graph, state.sized.inlined)
            better = self._combined(state, _helpful(self._gains(state, flips)))
            if better.size >= state.size:
                break
            state = better
        return state

    def _gains_by_function(
        self, state: InliningState, flips: Sequence[Flip]
    ) -> list[tuple[int, Flip]]:
        """Gains of flips in bytes, many of them measured by one compilation."""
        batches = batches_of(flips)
        changes = [_merged(flip.decisions for flip in batch) for batch in batches]
        tried = self.compilations.states(
            [state.decisions, *({**state.decisions, **each} for each in changes)],
            state.fallback,
            by_function=True,
        )
        if not tried:
            return []
        before, after = tried[0].sized.functions, tried[1:]
        # If time ended, the first batches were compiled.
        return [
            (flip.gain(before, made.sized.functions), flip)
            for batch, made in zip(batches, after, strict=False)
            for flip in batch
        ]

    def _gains(
        self, state: InliningState, flips: Sequence[Flip]
    ) -> list[tuple[int, Flip]]:
        """Gains of flips in bytes, each of them compiled alone."""
        tried = self.compilations.states(
            [{**state.decisions, **flip.decisions} for flip in flips], state.fallback
        )
        return [
            (state.size - made.size, flip)
            for flip, made in zip(flips, tried, strict=False)
        ]

    def _combined(
        self, state: InliningState, gains: Sequence[tuple[int, Flip]]
    ) -> InliningState:
        """The state after flips together; halves of them if they disturb each other."""
        if not gains:
            return state
        joined = _merged(flip.decisions for _, flip in gains)
        # Compiled even if time is over, so that a round's measurements are not lost.
        done = self.compilations.state({**state.decisions, **joined}, state.fallback)
        hoped = sum(gain for gain, _ in gains)
        if done.size <= state.size - _HOPED * hoped:
            return done
        if len(gains) == 1 or self.compilations.is_over:
            return min(state, done, key=lambda each: each.size)
        half = len(gains) // 2
        parts = self._combined(state, gains[:half])
        parts = self._combined(parts, gains[half:])
        return min(parts, done, key=lambda each: each.size)


def _saved_bytes(gains: Iterable[tuple[int, Flip]]) -> dict[CallSite, int]:
    """Bytes that inlining saves by call, from gains of deciding each call otherwise."""
    return {
        site: gain if inlines else -gain
        for gain, flip in gains
        for site, inlines in flip.decisions.items()
    }


def _helpful(gains: Iterable[tuple[int, Flip]]) -> list[tuple[int, Flip]]:
    """Flips that gain, the greatest gain first; of two about one call the first one."""
    found: list[tuple[int, Flip]] = []
    decided: set[CallSite] = set()
    for gain, flip in sorted(gains, key=lambda pair: -pair[0]):
        if gain > 0 and decided.isdisjoint(flip.decisions):
            found.append((gain, flip))
            decided |= flip.decisions.keys()
    return found


def _merged(changes: Iterable[Decisions]) -> dict[CallSite, bool]:
    """Decisions of several flips; of two about one call the first one's."""
    joined: dict[CallSite, bool] = {}
    for change in changes:
        joined = {**change, **joined}
    return joined
