"""`tune_tiles`: choose tile sizes of a program's CPU kernels, with few measurements."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from meshwright.errors import CompilerError
from meshwright.features.tune.iree.bench import timed_passes
from meshwright.features.tune.iree.find_kernels import FoundKernels, find_kernels
from meshwright.features.tune.iree.kernel import CpuKernel
from meshwright.features.tune.iree.program import IreeProgram
from meshwright.features.tune.iree.spec import tuning_spec
from meshwright.features.tune.iree.tiling import Tiling
from meshwright.features.tune.iree.toolchain import cpu_name, require_iree, version
from meshwright.features.tune.layouts.journal import Journal
from meshwright.features.tune.tiles.features import NUM_FEATURES
from meshwright.features.tune.tiles.kernel_search import (
    BestTiling,
    KernelSearch,
    TileOptions,
    spread_of,
)
from meshwright.features.tune.tiles.ranker import shipped_ranker
from meshwright.features.tune.tiles.tuned_tiles import TunedKernel, TunedTiles

BACKEND = "iree-cpu"
"""The backend that compiles with IREE for this machine's CPU and times the code."""

_PASSES = 5
"""Number of passes that time whole programs, in random order."""
_SMALL = 0.01
"""Least share of the program's time at which a kernel is worth tuning."""

Show = Callable[[str], None]


def tune_tiles(
    fn: Callable[..., Any],
    args: Sequence[Any],
    options: TileOptions,
    show: Show = lambda text: None,
) -> TunedTiles:
    """Find the fastest tile sizes of a function's kernels within a budget of measurements.

    args: arrays. The whole program is timed at the end, and its results are compared with
    JAX's. A kernel whose tiles change the results is left out, and so is a tuning spec that
    does not make the program faster.
    """
    require_iree()
    journal = Journal(options.journal)
    program = IreeProgram.of(fn, args)
    show("finding kernels")
    dispatches = find_kernels(program.text)
    trial = _Trial(program, program.expected(fn), options.seed)
    if not trial.is_right(""):
        raise CompilerError(
            f"{program.name}: IREE's own code computes other numbers than JAX; there is "
            "nothing to tune it against"
        )
    searches = [
        KernelSearch(
            kernel,
            shipped_ranker(NUM_FEATURES),
            journal,
            f"iree {version()}, {cpu_name()}:",
            options=options,
            count=len(names),
            show=show,
        )
        for kernel, names in dispatches.kernels.items()
    ]
    outcomes, notes = _run_all(searches, trial)
    return _result(trial, dispatches, outcomes, notes)


def _run_all(
    searches: Sequence[KernelSearch], trial: _Trial
) -> tuple[list[BestTiling], list[str]]:
    """Search for the tiles of each kernel, the one that takes most time first.

    Returns the results, and notes for the user. Ctrl-C ends the search with the tiles that
    were found.
    """
    seconds: dict[KernelSearch, float] = {}
    notes: list[str] = []
    for search in searches:
        try:
            seconds[search] = search.default().cost * search.count
        except CompilerError as reason:
            notes.append(
                f"{search.kernel} cannot be run alone, and keeps IREE's tiles: {reason}"
            )
    whole_s = min(trial.times([""])[""]) / 1e9
    outcomes: list[BestTiling] = []
    for search in sorted(seconds, key=lambda search: -seconds[search]):
        share = seconds[search] / whole_s
        if share < _SMALL:
            notes.append(
                f"{search.kernel} takes {100 * share:.1f} % of the time: not tried"
            )
            continue
        outcomes.append(search.run())
        if outcomes[-1].stopped == "interrupted":
            notes.append("interrupted: the remaining kernels keep IREE's tiles")
            break
    return outcomes, notes


@dataclass(slots=True, eq=False)
class _Trial:
    """The whole program, to be compiled and run with different tuning specs.

    expected: results of the program in JAX, with which others are compared.
    """

    program: IreeProgram
    expected: Sequence[Any]
    seed: int

    def is_right(self, spec: str) -> bool:
        return self.program.is_right(self.program.compile(spec), self.expected)

    def right_tiles(
        self, tilings: Mapping[CpuKernel, Tiling]
    ) -> dict[CpuKernel, Tiling]:
        """The tile sizes with which the program computes the same as in JAX.

        If it does not with all of `chosen`, kernels are added one by one, and a kernel
        whose tile sizes change the results is left out.
        """
        if self._works(tilings):
            return dict(tilings)
        kept: dict[CpuKernel, Tiling] = {}
        for kernel, tiling in tilings.items():
            if self._works({**kept, kernel: tiling}):
                kept[kernel] = tiling
        return kept

    def _works(self, tilings: Mapping[CpuKernel, Tiling]) -> bool:
        try:
            return self.is_right(tuning_spec(tilings) if tilings else "")
        except CompilerError:
            return False

    def times(self, specs: Sequence[str]) -> dict[str, list[int]]:
        """CPU nanoseconds of each pass of the whole program, for each tuning spec."""
        leaves = self.program.placed(self.program.leaves)
        compiled = {spec: self.program.compile(spec) for spec in specs}
        runs = {spec: partial(code, *leaves) for spec, code in compiled.items()}
        return timed_passes(runs, _PASSES, self.seed)


def _result(
    trial: _Trial,
    dispatches: FoundKernels,
    outcomes: Sequence[BestTiling],
    notes: list[str],
) -> TunedTiles:
    """The record of the search, after the whole program has been checked and timed."""
    program = trial.program
    wanted = {each.kernel: each.tiling for each in outcomes if each.tiling}
    kept = trial.right_tiles(wanted)
    notes += [
        f"{kernel}: its tiles change the program's results, and were left out"
        for kernel in wanted.keys() - kept.keys()
    ]
    spec = tuning_spec(kept) if kept else ""
    times = trial.times(list(dict.fromkeys(("", spec))))
    default_s, tuned_s = min(times[""]) / 1e9, min(times[spec]) / 1e9
    if tuned_s > default_s:
        notes.append(
            "the whole program is not faster with these tiles: IREE's are kept"
        )
        spec, tuned_s = "", default_s
    return TunedTiles(
        name=program.name,
        backend=BACKEND,
        compiler=f"IREE {version()}",
        cpu=cpu_name(),
        default_s=default_s,
        tuned_s=tuned_s,
        spread=max(spread_of(times[""]), spread_of(times[spec])),
        kernels=tuple(_tuned_kernel(each, kept) for each in outcomes),
        others=dispatches.others,
        notes=tuple(notes),
        spec=spec,
        seed=trial.seed,
        fn=program.callable(program.compile(spec)),
    )


def _tuned_kernel(outcome: BestTiling, kept: Mapping[CpuKernel, Tiling]) -> TunedKernel:
    """The record of a kernel, with IREE's tiles if its own were left out."""
    if outcome.kernel in kept:
        return outcome.record
    return replace(outcome.record, tiles="", tuned_s=outcome.record.default_s)
