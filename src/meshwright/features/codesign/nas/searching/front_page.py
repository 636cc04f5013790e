"""The HTML page about a front: pictures without scripts, and tables."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from html import escape
from os import PathLike

from meshwright.app.output.files import output_file, write_file
from meshwright.app.output.notebook import table
from meshwright.app.output.picture import page, svg
from meshwright.features.codesign.nas.searching.proxies import rank_correlations
from meshwright.search.trials import Front, Trial

_WIDTH, _HEIGHT, _MARGIN = 640.0, 360.0, 90.0
_CHECKS = 100
"""Numbers of trials at which the hypervolume is computed, at most."""


def write_front_page(
    front: Front,
    path: str | PathLike[str],
    remarks: Sequence[str] = (),
    proxies: Sequence[str] = (),
) -> None:
    """Write the page about a front.

    remarks: lines under the title. proxies: figures whose rank correlation with the first
    objective is shown.
    """
    target = output_file(path)
    body = "\n".join(_sections(front, proxies))
    head = [str(front).splitlines()[0], *remarks]
    lead = "Each point is a trial; those of the front are large and joined."
    write_file(target, page("Front of a search", "\n".join(head), lead, body).encode())


def _sections(front: Front, proxies: Sequence[str]) -> Iterable[str]:
    names = list(front.goals.objectives)
    if len(names) > 1:
        for other in names[1:]:
            yield f"<h2>{escape(names[0])} and {escape(other)}</h2>"
            yield _scatter(front, names[0], other)
    yield "<h2>Hypervolume over trials</h2>"
    yield _volumes(front)
    yield "<h2>Chosen models</h2>"
    yield _models(front)
    if taus := rank_correlations(front.trials, names[0], proxies):
        yield f"<h2>Kendall's tau of proxies with {escape(names[0])}</h2>"
        yield table(("proxy", ">tau"), [(name, f"{t:.3f}") for name, t in taus.items()])
    failed = [trial for trial in front.trials if trial.reason]
    if failed:
        yield "<h2>Trials that failed</h2>"
        rows = [(str(trial.number), trial.reason) for trial in failed[:50]]
        yield table((">trial", "reason"), rows)


def _scatter(front: Front, vertical: str, horizontal: str) -> str:
    """The trials by two figures, those of the front joined."""
    shown = [t for t in front.trials if not t.reason and t.fidelity == 1]
    pairs = [(t.values[horizontal], t.values[vertical]) for t in shown]
    axes = _Axes(pairs or [(0, 0)], (horizontal, vertical))
    chosen = sorted(front.points, key=lambda t: t.values[horizontal])
    line = " ".join(
        "{:.1f},{:.1f}".format(*axes.at(t, horizontal, vertical)) for t in chosen
    )
    marks = [f'<polyline points="{line}" fill="none" stroke="#06c"/>']
    numbers = {t.number for t in front.points}
    for trial in sorted(shown, key=lambda t: t.number in numbers):
        on_front = trial.number in numbers
        x, y = axes.at(trial, horizontal, vertical)
        note = f"trial {trial.number}: {json.dumps(trial.candidate)}"
        fill = "#06c" if on_front else ("#bbb" if trial.violation == 0 else "#e99")
        marks.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{5 if on_front else 3}" '
            f'fill="{fill}"><title>{escape(note)}</title></circle>'
        )
    return svg((_WIDTH, _HEIGHT), [*axes.marks(), *marks], _MARGIN)


def _volumes(front: Front) -> str:
    """The hypervolume after each number of trials, up to the worst values tried."""
    whole = [trial for trial in front.trials if trial.is_feasible]
    if not whole:
        return "<p>No trial is feasible.</p>"
    count = len(front.trials)
    numbers = sorted({math.ceil(count * (i + 1) / _CHECKS) for i in range(_CHECKS)})
    reference = {
        name: max(values) if way == "min" else min(values)
        for name, way in front.goals.objectives.items()
        for values in [[trial.values[name] for trial in whole]]
    }
    found = front.hypervolumes(reference, numbers)
    axes = _Axes(list(zip(numbers, found, strict=True)), ("trials", "hypervolume"))
    line = " ".join(
        "{:.1f},{:.1f}".format(*axes.place(*pair))
        for pair in zip(numbers, found, strict=True)
    )
    curve = f'<polyline points="{line}" fill="none" stroke="#06c" stroke-width="2"/>'
    return svg((_WIDTH, _HEIGHT), [*axes.marks(), curve], _MARGIN)


def _models(front: Front) -> str:
    names = list(front.points[0].values) if front.points else []
    numbers = [n for n in names if isinstance(front.points[0].values[n], int | float)]
    rows = [
        (
            str(point.number),
            *(f"{point.values[name]:.5g}" for name in numbers if name in point.values),
            json.dumps(point.candidate),
        )
        for point in front.points
    ]
    return table((">trial", *(f">{name}" for name in numbers), "candidate"), rows)


class _Axes:
    """A plane of two figures within a picture, with labels at the ends of each axis."""

    def __init__(
        self, pairs: Sequence[tuple[float, float]], names: tuple[str, str]
    ) -> None:
        columns = list(zip(*pairs, strict=True))
        self.low = [min(column) for column in columns]
        self.high = [max(column) for column in columns]
        self.names = names

    def place(self, x: float, y: float) -> tuple[float, float]:
        """Coordinates in the picture of two figures."""
        shares = [
            (value - low) / (high - low or 1)
            for value, low, high in zip((x, y), self.low, self.high, strict=True)
        ]
        return shares[0] * _WIDTH, (1 - shares[1]) * _HEIGHT

    def at(self, trial: Trial, horizontal: str, vertical: str) -> tuple[float, float]:
        """Coordinates in the picture of a trial."""
        return self.place(trial.values[horizontal], trial.values[vertical])

    def marks(self) -> list[str]:
        """The frame, and the names and ends of the axes."""
        frame = f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="none" stroke="#999"/>'
        below, left = _HEIGHT + 20, -8
        return [
            frame,
            _label(0, below, "start", f"{self.low[0]:.4g}"),
            _label(_WIDTH / 2, below, "middle", self.names[0]),
            _label(_WIDTH, below, "end", f"{self.high[0]:.4g}"),
            _label(left, _HEIGHT, "end", f"{self.low[1]:.4g}"),
            _label(left, 12, "end", f"{self.high[1]:.4g}"),
            _label(0, -10, "start", self.names[1]),
        ]


def _label(x: float, y: float, anchor: str, text: str) -> str:
    return (
        f'<text x="{x}" y="{y}" text-anchor="{anchor}" font-size="13" '
        f'font-family="sans-serif">{escape(text)}</text>'
    )
