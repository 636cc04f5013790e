"""Search for the inlining decisions that make a unit's text smallest.

Rounds of flips of one decision follow each other, from the compiler's own decisions and
from none inlined. One compilation measures many flips, function by function; those that
help are combined and checked. Rounds that compile each flip alone come last, and small
call graphs are enumerated, which proves the optimum.
"""

from collections.abc import Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field

from meshwright.features.policies.compiler.replay import CallSite, Decisions
from meshwright.features.policies.compiler.tuning.call_graph import CallGraph
from meshwright.features.policies.compiler.tuning.enumeration import least_state
from meshwright.features.policies.compiler.tuning.flips import (
    Flip,
    batches_of,
    callee_flips,
    single_flips,
)
from meshwright.features.policies.compiler.tuning.states import (
    Compilations,
    InliningState,
    SizeFn,
)

_HOPED = 0.75
"""Share of the sum of gains that flips together must reach to be taken as they are."""


@dataclass(frozen=True, slots=True)
class Tuned:
    """The best decisions found for a unit.

    default_bytes: text bytes by the compiler's own decisions. is_optimal: whether an
        enumeration of all decisions proves that no others are smaller. is_complete:
        whether the search ended before its time did.
    saved_bytes: by call that the compiler's own decisions leave, the bytes that inlining
        it saves if all others stay: what a policy learns from.
    """

    decisions: Decisions
    default_bytes: int
    text_bytes: int
    compilations: int
    is_optimal: bool
    is_complete: bool
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

    def run(self, start: Decisions) -> Tuned:
        """The best decisions; never worse than the compiler's own.

        start: decisions of an earlier search, from which this one goes on.
        """
        compilations = self.compilations
        default = compilations.state({}, "Original")
        if start:
            best = self._improved(compilations.state(start, "Original"))
        else:
            best = self._improved(default, is_default=True)
            if not compilations.is_over:
                never = self._improved(compilations.state({}, "NeverInline"))
                best = min(best, never, key=lambda state: state.size)
        best = self._polished(best)
        optimum = None
        if not compilations.is_over:
            optimum = least_state(self.graph, compilations, default)
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
            not compilations.is_over,
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
        by_callee = False
        stalled = 0
        while stalled < 2 and not self.compilations.is_over:
            flips_fn = callee_flips if by_callee else single_flips
            gains = self._gains_by_function(
                state, flips_fn(self.graph, state.sized.inlined)
            )
            if is_default:
                self._saved = _saved_bytes(gains)
            better = self._combined(state, _helpful(gains))
            stalled = 0 if better.size < state.size else stalled + 1
            state, is_default, by_callee = better, False, not by_callee
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
    """Flips that gain, the greatest gain first."""
    return sorted((pair for pair in gains if pair[0] > 0), key=lambda pair: -pair[0])


def _merged(changes: Iterable[Decisions]) -> dict[CallSite, bool]:
    """Decisions of several flips; of two about one call the first one's."""
    joined: dict[CallSite, bool] = {}
    for change in changes:
        joined = {**change, **joined}
    return joined
