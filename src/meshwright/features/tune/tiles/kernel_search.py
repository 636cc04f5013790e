"""The search for one kernel's tile sizes: a model proposes, measurements decide."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from meshwright.errors import CompilerError, SearchError
from meshwright.features.tune.iree.bench import KernelBench
from meshwright.features.tune.iree.kernel import CpuKernel
from meshwright.features.tune.iree.space import TileSpace
from meshwright.features.tune.iree.tiling import Tiling
from meshwright.features.tune.layouts.journal import Journal
from meshwright.features.tune.layouts.verdict import Verdict, failed
from meshwright.features.tune.tiles.ranker import Ranker
from meshwright.features.tune.tiles.tile_model import TileModel
from meshwright.features.tune.tiles.tile_problem import State, TileProblem
from meshwright.features.tune.tiles.tuned_tiles import TunedKernel
from meshwright.search.engines.surrogate import Surrogate
from meshwright.search.loop.engine import Budget, Stopped, search

_POOL = 3000
"""Number of random tilings of a kernel among which the model chooses."""
_PASSES = 3
"""Number of passes that time a tiling and the default, in random order."""
_FINALISTS = 3
"""Number of the best tilings that are timed once more, in the same passes."""
_LEAST_GAIN = 0.01
"""Least share of the default's time that a tiling has to save."""


@dataclass(frozen=True, slots=True)
class TileOptions:
    """Limits of a search for tile sizes.

    budget: number of tilings that are measured per kernel, IREE's own included.
    timeout_s: seconds for one compilation of a kernel.
    journal: file that keeps measurements; it also serves other programs with the same
        kernels.
    """

    budget: int
    seed: int
    timeout_s: float = 30.0
    journal: Path | None = None

    def __post_init__(self) -> None:
        if self.budget < 2:
            raise SearchError(
                f"a budget of {self.budget} measurements per kernel: wanted 2 or more, "
                "the first is the default's"
            )


@dataclass(frozen=True, slots=True)
class BestTiling:
    """The outcome of one kernel's search.

    tiling: the tile sizes; `None` if the default is best.
    record: what the result of tuning says about the kernel.
    stopped: reason for the end of the search.
    """

    kernel: CpuKernel
    tiling: Tiling | None
    record: TunedKernel
    stopped: Stopped


@dataclass(eq=False)
class KernelSearch:
    """A search for one kernel's tile sizes, which reuses the timings in a journal.

    place: text that names compiler and CPU, and begins the journal's keys. So another
        program with the same kernel finds its times there.
    count: number of dispatches of the program that run the kernel.
    asked: relative time of each tiling so far.
    """

    kernel: CpuKernel
    ranker: Ranker
    journal: Journal
    place: str
    options: TileOptions
    count: int = 1
    show: Callable[[str], None] = lambda text: None
    asked: dict[State, Verdict] = field(default_factory=dict)

    def run(self) -> BestTiling:
        """Search for the best tiling; it is never slower than IREE's default."""
        space, seed = TileSpace.of(self.kernel), self.options.seed
        pool = tuple(space.sample(_POOL, seed))
        result = search(
            TileProblem(space, pool, self.ask),
            Surrogate(seed, TileModel(self.kernel, self.ranker), jumps=0.0),
            Budget(evaluations=self.options.budget),
        )
        tried = [t for t, v in self.asked.items() if t and math.isfinite(v.cost)]
        tried.sort(key=lambda t: self.asked[t].cost)
        return self._decide(tried[:_FINALISTS], result.stopped)

    def ask(self, state: State) -> float:
        """A tiling's time divided by the default's; infinite if it does not compile."""
        if state not in self.asked:
            self.asked[state] = self._verdict(str(state), lambda: self._measure(state))
            best = min(verdict.cost for verdict in self.asked.values())
            self.show(f"{self.kernel}: {len(self.asked)} tilings, {1 / best:.2f}x")
        return self.asked[state].cost

    def _measure(self, state: State) -> Verdict:
        if state is None:
            return Verdict(1.0)
        try:
            self.bench.build(state)
        except CompilerError as reason:
            return failed(str(reason))
        return self._compare([state], _PASSES)[0]

    def _compare(self, tilings: Sequence[Tiling], passes: int) -> list[Verdict]:
        """Each tiling's fastest pass divided by the default's fastest pass."""
        times = self.bench.times([None, *tilings], passes, self.options.seed)
        default_ns = min(times[None])
        return [
            Verdict(min(t) / default_ns, spread=spread_of(t))
            for t in (times[tiling] for tiling in tilings)
        ]

    def _decide(self, finalists: Sequence[Tiling], stopped: Stopped) -> BestTiling:
        """The search's outcome, after a last comparison of the fastest tilings.

        The default is kept if none of these is faster by 1 %.
        """
        default = self.default()
        compared = self._final(finalists)
        best = min(compared, key=lambda t: compared[t].cost, default=None)
        if best is not None and compared[best].cost > 1 - _LEAST_GAIN:
            best = None
        verdict = Verdict(1.0) if best is None else compared[best]
        record = TunedKernel(
            name=str(self.kernel),
            fingerprint=self.kernel.fingerprint,
            tiles=str(best or ""),
            count=self.count,
            default_s=default.cost,
            tuned_s=default.cost * verdict.cost,
            spread=max(default.spread, verdict.spread),
            measured=len(self.asked),
            failed=sum(bool(verdict.error) for verdict in self.asked.values()),
        )
        return BestTiling(self.kernel, best, record, stopped)

    def _final(self, finalists: Sequence[Tiling]) -> dict[Tiling, Verdict]:
        """Verdicts on the fastest tilings, which are timed in the same passes."""
        keys = {t: self._key(f"{t} against {len(finalists)}") for t in finalists}
        stored = self.journal.verdicts
        if not all(key in stored for key in keys.values()):
            for tiling in finalists:
                self.bench.build(tiling)
            verdicts = self._compare(finalists, 2 * _PASSES)
            for tiling, verdict in zip(finalists, verdicts, strict=True):
                self.journal.note(keys[tiling], verdict)
        return {tiling: stored[keys[tiling]] for tiling in finalists}

    def default(self) -> Verdict:
        """CPU seconds of one run with IREE's own tile sizes, as a verdict's cost."""
        return self._verdict("default", self._time_default)

    def _time_default(self) -> Verdict:
        times = self.bench.times([None], _PASSES, self.options.seed)[None]
        return Verdict(min(times) / 1e9, spread=spread_of(times))

    def _verdict(self, what: str, measure: Callable[[], Verdict]) -> Verdict:
        """The journal's verdict on `what`, measured and recorded if it is missing."""
        key = self._key(what)
        if key not in self.journal.verdicts:
            self.journal.note(key, measure())
        return self.journal.verdicts[key]

    @cached_property
    def bench(self) -> KernelBench:
        """The compiled variants of the kernel, created at the first measurement."""
        return KernelBench(self.kernel, self.options.seed, self.options.timeout_s)

    def _key(self, what: str) -> str:
        return f"{self.place} {self.kernel.fingerprint} {what}"


def spread_of(times: Sequence[int]) -> float:
    """The median time of several passes minus the fastest, divided by the fastest.

    The slowest pass says more about other programs on this machine than about this one.
    """
    return statistics.median(times) / min(times) - 1
