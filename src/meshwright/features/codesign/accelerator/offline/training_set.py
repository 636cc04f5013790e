"""Logs of several applications, scaled for the surrogate, with some held out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshwright.errors import AcceleratorError
from meshwright.features.codesign.accelerator.offline.design_logs import ApplicationLog
from meshwright.search.arrays import Bools, Floats, Ints

HELD_OUT = 0.15
"""Share of each log on which the ranking of a surrogate is measured."""

LEAST_FEASIBLE = 20
"""Feasible designs that a log needs, so that some can be held out."""


@dataclass(frozen=True, slots=True, eq=False)
class Designs:
    """Designs of N rows: their application's number, genes [N, G], merit and log area.

    merit: minus the standardised logarithm of the runtime; NaN if infeasible.
    log_area: logarithm of the area, less the logs' mean; NaN where it is not known.
    """

    application: Ints
    genes: Ints
    merit: NDArray[np.float32]
    log_area: NDArray[np.float32]

    def rows(self, chosen: Ints | Bools) -> Designs:
        """Some of the designs, by number or mask."""
        return Designs(
            self.application[chosen],
            self.genes[chosen],
            self.merit[chosen],
            self.log_area[chosen],
        )

    @property
    def feasible(self) -> Designs:
        """The feasible designs."""
        return self.rows(~np.isnan(self.merit))

    @property
    def infeasible(self) -> Designs:
        """The infeasible designs."""
        return self.rows(np.isnan(self.merit))


@dataclass(frozen=True, slots=True)
class LogScale:
    """A mean and a standard deviation."""

    mean: float
    deviation: float

    @classmethod
    def of(cls, values: Floats) -> LogScale:
        """The scale of values, without those that are NaN."""
        kept = values[~np.isnan(values)]
        if not len(kept):
            return cls(0.0, 1.0)
        return cls(float(kept.mean()), float(kept.std()) or 1.0)

    def apply(self, values: Floats) -> NDArray[np.float32]:
        """The values relative to the mean, in standard deviations."""
        return ((values - self.mean) / self.deviation).astype(np.float32)


@dataclass(frozen=True, slots=True, eq=False)
class TrainingSet:
    """Logs as a surrogate learns from them.

    names: of the applications, in the order of their numbers.
    contexts: figures of each application, [A, C], standardised over the applications.
    runtimes, areas: scales of the logarithms, of each application and of all.
    learned, held_out: the designs to learn from, and those to rank.
    """

    names: tuple[str, ...]
    context_names: tuple[str, ...]
    context_scales: tuple[LogScale, ...]
    contexts: NDArray[np.float32]
    runtimes: tuple[LogScale, ...]
    areas: LogScale
    learned: Designs
    held_out: Designs

    def context_of(self, log: ApplicationLog) -> NDArray[np.float32]:
        """The context of an application that need not be among those learned, [C]."""
        return _context(log, self.context_names, self.context_scales)


def _skipped(log: ApplicationLog) -> str:
    return f"; {log.num_skipped} corrupt rows were skipped" if log.num_skipped else ""


def make_training_set(logs: Sequence[ApplicationLog], seed: int) -> TrainingSet:
    """Logs of one or more applications, a random share of each held out."""
    for log in logs:
        feasible = int(log.is_feasible.sum())
        if feasible < LEAST_FEASIBLE:
            raise AcceleratorError(
                f"the logs of {log.name} have {feasible or 'no'} feasible designs within "
                f"the caps; learning needs at least {LEAST_FEASIBLE}: log more designs, or "
                f"raise the cap{_skipped(log)}"
            )
    names = _shared_context(logs)
    figures = np.array([[log.context[n] for n in names] for log in logs], np.float64)
    scales = tuple(LogScale.of(column) for column in figures.T)
    times = tuple(LogScale.of(np.log(log.runtime_ms)) for log in logs)
    areas = LogScale.of(np.log(np.concatenate([log.area_mm2 for log in logs])))
    areas = LogScale(areas.mean, 1.0)  # so that parts of an area can be added
    whole = _designs(logs, times, areas)
    held = np.random.default_rng([seed, 0]).random(len(whole.genes)) < HELD_OUT
    return TrainingSet(
        names=tuple(log.name for log in logs),
        context_names=names,
        context_scales=scales,
        contexts=np.array([_context(log, names, scales) for log in logs]),
        runtimes=times,
        areas=areas,
        learned=whole.rows(~held),
        held_out=whole.rows(held),
    )


def _designs(
    logs: Sequence[ApplicationLog], times: Sequence[LogScale], areas: LogScale
) -> Designs:
    merits = [
        -scale.apply(np.log(log.runtime_ms))
        for log, scale in zip(logs, times, strict=True)
    ]
    return Designs(
        np.repeat(np.arange(len(logs)), [len(log.genes) for log in logs]),
        np.concatenate([log.genes for log in logs]),
        np.concatenate(merits),
        np.concatenate([areas.apply(np.log(log.area_mm2)) for log in logs]),
    )


def _shared_context(logs: Sequence[ApplicationLog]) -> tuple[str, ...]:
    """The names of the figures that describe every application; none for a single one."""
    if len(logs) == 1:
        return ()
    shared = set(logs[0].context).intersection(*(log.context for log in logs))
    return tuple(name for name in logs[0].context if name in shared)


def _context(
    log: ApplicationLog, names: Sequence[str], scales: Sequence[LogScale]
) -> NDArray[np.float32]:
    given = [
        (log.context[name] - scale.mean) / scale.deviation
        for name, scale in zip(names, scales, strict=True)
    ]
    return np.array(given, np.float32)
