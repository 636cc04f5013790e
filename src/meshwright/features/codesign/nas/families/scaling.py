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

_LEAST_PHI, _MOST_PHI = -2.0, 12.0
"""Doublings of operations between which a target's model is looked for."""


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
    targets, given = checked_targets(targets_ms), checked_base(base)
    if not points:
        raise NasError("a family needs evaluated models; got no points")
    base = base_resolution(points) if given is None else given
    winners = tuple(winners_of(points, targets))
    if len({winner.scales for winner in winners}) == 1:
        raise NasError(_why_no_law(winners[0], points))
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


def checked_base(base: float | None) -> float | None:
    """The resolution at depth and width 1; `NasError` unless it is above 0, or `None`."""
    if base is not None and not 0 < base < math.inf:
        raise NasError(f"the base resolution is {base!r}; wanted a number above 0")
    return base


def _why_no_law(winner: Point, points: Sequence[Point]) -> str:
    times = [point.latency_ms for point in points]
    one = ", ".join(f"{scale:g}" for scale in winner.scales)
    return (
        f"a law needs 2 models that differ, and that of depth, width and resolution {one} "
        f"is the best for all targets; the models tried take {min(times):.3g} to "
        f"{max(times):.3g} ms: give targets among these, farther apart"
    )


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


_ALIKE = 0.2
"""Share of the points' largest extent below which they do not differ in a direction."""


def interpolated(points: Sequence[Point]) -> LatencyFn:
    """Latency by a fit through the points: a product of powers, or of higher terms.

    Points that are too few for that, or that differ in some scales only, give a product of
    powers of what they differ in; those on a line are met exactly.
    """
    logs = np.log([point.scales for point in points])
    times = np.log([point.latency_ms for point in points])
    surface = fit_times(logs, times)
    if surface is not None:
        return lambda *scales: float(np.exp(surface(np.log([scales]))[0]))
    centre = logs.mean(axis=0)
    _, extents, directions = np.linalg.svd(logs - centre, full_matrices=False)
    directions = directions[extents > _ALIKE * extents[0]]
    at = (logs - centre) @ directions.T
    slopes = np.linalg.lstsq(at, times - times.mean(), rcond=None)[0]
    rest = times - times.mean() - at @ slopes
    order = np.argsort(at[:, 0])

    def milliseconds(*scales: float) -> float:
        place = directions @ (np.log(scales) - centre)
        found = times.mean() + slopes @ place
        if len(directions) == 1:
            found += np.interp(place[0], at[order, 0], rest[order])
        return float(np.exp(found))

    return milliseconds


def _member(law: Law, target: float, latency_ms: LatencyFn) -> Member:
    """The model on the law whose latency is the target, by bisection of phi.

    Layers and channels are whole numbers, so that latency may jump past the target; then it
    is the last model before.
    """
    low, high = _LEAST_PHI, _MOST_PHI
    for _ in range(_HALVINGS):
        phi = (low + high) / 2
        spent = latency_ms(*law.at(phi))
        if abs(spent / target - 1) < _SLACK - 1:
            break
        low, high = (phi, high) if spent < target else (low, phi)
    else:
        phi = low
    if low == _LEAST_PHI and latency_ms(*law.at(low)) > target * _SLACK:
        raise NasError(_unreached(law, target, low, latency_ms))
    if high == _MOST_PHI and latency_ms(*law.at(high)) < target / _SLACK:
        raise NasError(_unreached(law, target, high, latency_ms))
    return Member(target, phi, *law.at(phi), latency_ms(*law.at(phi)))


def _unreached(law: Law, target: float, phi: float, latency_ms: LatencyFn) -> str:
    """Why no model of the law has a target's latency."""
    at = ", ".join(f"{scale:.3g}" for scale in law.at(phi))
    return (
        f"no model of the law takes {target:g} ms: that of depth, width and resolution "
        f"{at} takes {latency_ms(*law.at(phi)):.3g} ms"
    )
