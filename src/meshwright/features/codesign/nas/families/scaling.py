"""Latency-aware compound scaling: the best model for each target, and one law for all.

S. Li, M. Tan et al., "Searching for Fast Model Families on Datacenter Accelerators" (CVPR
2021): depth, width and resolution are varied on a grid, the most accurate model within each
latency target is taken, and one law is fitted to these winners.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from meshwright.errors import NasError
from meshwright.features.codesign.nas.families.law import Law, fit_law
from meshwright.features.codesign.nas.families.points import Point, base_resolution
from meshwright.features.codesign.nas.families.surfaces import (
    fine_grid,
    fit_accuracy,
    fit_times,
)
from meshwright.plain import plain

_STEPS = 61
"""Grid lines of a scale on which winners are looked for."""

_HALVINGS = 30
"""Halvings of phi's interval in the search for a target."""

_SLACK = 1.001
"""Latencies that exceed a target by less count as within it."""

_MOST_PHI = 12.0


@dataclass(frozen=True, slots=True)
class Member:
    """A model of a family: the law at the largest phi that keeps a target's latency."""

    target_ms: float
    phi: float
    depth: float
    width: float
    resolution: float
    latency_ms: float


@dataclass(frozen=True, slots=True)
class Family:
    """The law, the winners to which it was fitted, and a model for each target."""

    law: Law
    winners: tuple[Point, ...]
    members: tuple[Member, ...]

    def to_plain(self) -> dict[str, object]:
        """The family as plain data."""
        return plain(self)


LatencyFn = Callable[[float, float, float], float]
"""Milliseconds of the model of a depth, width and resolution."""


def scale_family(
    points: Sequence[Point],
    targets_ms: Sequence[float],
    latency_ms: LatencyFn | None = None,
    base: float | None = None,
) -> Family:
    """The family of models for these targets.

    points: evaluated models, such as all of a grid.
    latency_ms: the time of other models than the points; `None` to interpolate between the
        points.
    base: resolution at depth and width 1; `None` for that of the points.
    """
    targets = checked_targets(targets_ms)
    base = base_resolution(points) if base is None else base
    winners = tuple(winners_of(points, targets))
    law = fit_law([winner.scales for winner in winners], base)
    timed = interpolated(points) if latency_ms is None else latency_ms
    members = tuple(_member(law, target, timed) for target in targets)
    return Family(law, winners, members)


def checked_targets(targets_ms: Sequence[float]) -> list[float]:
    """The targets in ascending order; `NasError` unless there are two that are positive."""
    targets = sorted(set(targets_ms))
    if len(targets) < 2 or not 0 < targets[0] <= targets[-1] < math.inf:
        raise NasError(
            "a family needs two latency targets or more, in milliseconds above 0; got "
            f"{', '.join(f'{t:g}' for t in targets_ms) or 'none'}"
        )
    return targets


def winners_of(points: Sequence[Point], targets: Sequence[float]) -> list[Point]:
    """The most accurate model within each target.

    With enough points accuracy and latency are those of smooth surfaces through them, and
    a winner may lie between points; otherwise a winner is a point.
    """
    fastest = min(point.latency_ms for point in points)
    if targets[0] * _SLACK < fastest:
        raise NasError(
            f"no model takes {targets[0]:g} ms or less; the fastest takes {fastest:.3g} ms"
        )
    logs = np.log([point.scales for point in points])
    accuracy = fit_accuracy(logs, np.array([p.accuracy for p in points]))
    times = fit_times(logs, np.log([p.latency_ms for p in points]))
    if accuracy is None or times is None:
        return [_best_within(points, target) for target in targets]
    grid = fine_grid(logs, _STEPS)
    scores, spent = accuracy(grid), np.exp(times(grid))
    found: list[Point] = []
    for target in targets:
        within = np.where(spent <= target * _SLACK, scores, -np.inf)
        best = int(within.argmax())
        if within[best] == -np.inf:
            found.append(_best_within(points, target))
            continue
        depth, width, size = map(float, np.exp(grid[best]))
        score, time = float(scores[best]), float(spent[best])
        found.append(Point(depth, width, size, score, time))
    return found


def edges_of(points: Sequence[Point], winners: Sequence[Point]) -> list[str]:
    """The scales whose largest value among the points some winners have, as sentences.

    There a larger value might be better still, and the law is held back by the grid.
    """
    found: list[str] = []
    for name, column in (("depth", 0), ("width", 1), ("resolution", 2)):
        values = [point.scales[column] for point in points]
        most = max(values)
        count = sum(math.isclose(w.scales[column], most) for w in winners)
        if count and most > min(values):
            found.append(
                f"{count} of the {len(winners)} best models have the largest {name} "
                f"that was tried, {most:g}; a larger one may give a better law"
            )
    return found


def _best_within(points: Sequence[Point], target: float) -> Point:
    within = [p for p in points if p.latency_ms <= target * _SLACK]
    return max(within, key=lambda p: (p.accuracy, -p.latency_ms))


def interpolated(points: Sequence[Point]) -> LatencyFn:
    """Latency by a fit through the points: a product of powers, or of higher terms."""
    logs = np.log([point.scales for point in points])
    times = np.log([point.latency_ms for point in points])
    surface = fit_times(logs, times)
    if surface is not None:
        return lambda *scales: float(np.exp(surface(np.log([scales]))[0]))
    order = np.argsort(logs[:, 0])
    x, y = logs[order, 0], times[order]
    return lambda depth, width, resolution: float(
        np.exp(np.interp(np.log(depth), x, y))
    )


def _member(law: Law, target: float, latency_ms: LatencyFn) -> Member:
    """The model on the law whose latency is the target, by bisection of phi.

    Layers and channels are whole numbers, so that latency may jump past the target; then it
    is the last model before.
    """
    low, high = -2.0, _MOST_PHI
    for _ in range(_HALVINGS):
        phi = (low + high) / 2
        spent = latency_ms(*law.at(phi))
        if abs(spent / target - 1) < _SLACK - 1:
            break
        low, high = (phi, high) if spent < target else (low, phi)
    else:
        phi = low
    return Member(target, phi, *law.at(phi), latency_ms(*law.at(phi)))
