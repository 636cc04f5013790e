"""The HTML page about a design and the programs evaluated on it; no scripts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape

from meshwright.app.output.notebook import table
from meshwright.app.output.numbers import show_seconds, show_share, show_si
from meshwright.app.output.picture import box, page, svg
from meshwright.features.codesign.accelerator.design.design import Design
from meshwright.features.codesign.accelerator.simulate.evaluate import (
    Evaluation,
    LayerResult,
)
from meshwright.machine.memory_size import show_bytes

_COLOURS = {
    "arrays": "#0b6fb8", "vector": "#4cae6a", "l1": "#f0a030", "global": "#e07020",
    "dram": "#b03a3a", "launch": "#999", "overhead": "#777", "leakage": "#bbb",
    "memory": "#f0a030", "channels": "#b03a3a", "rest": "#ccc",
}  # fmt: skip

_WIDTH = 900.0
_MOST_DRAWN = 32
"""PEs along a side, and rows of a chart, that are drawn one by one."""


def make_page(found: Sequence[Evaluation]) -> str:
    """The page about programs on one design."""
    design = found[0].design
    lead = "Point at a part to see its figures. Colours mean the same in all pictures."
    text = (
        f"{design.title or design.name}\narea {design.area_mm2:.0f} mm2, peak power "
        f"{design.tdp_w:.1f} W\nassumed: {show_share(design.cost.assumed_area)} of the "
        f"area, {show_share(design.cost.assumed_power)} of the peak power"
    )
    body = "\n".join(_sections(design, found))
    return page(f"Design {design.name}", text, lead, body)


def _sections(design: Design, found: Sequence[Evaluation]) -> Iterator[str]:
    yield "<h2>Arrays and memories</h2>"
    yield _chip(design)
    yield "<h2>Area by part</h2>"
    yield _bar({p: a for p, a in design.cost.area_mm2.items() if a > 0}, "mm2")
    yield "<h2>Peak power by part</h2>"
    yield _bar({p: w for p, w in design.cost.power_w.items() if w > 0}, "W")
    for each in found:
        yield f"<h2>{escape(each.workload.name)}: {show_seconds(each.seconds)}</h2>"
        yield "<h3>Where time goes: each layer by what bounds it</h3>"
        yield _layers(each)
        yield "<h3>Where energy goes</h3>"
        yield _bar({p: j for p, j in each.by_level.items() if j > 0}, "J")
        yield "<h3>Roofline: operations per byte of main memory, and rate</h3>"
        yield _roofline(each)
        yield "<h3>Schedules of the longest products</h3>"
        yield _schedules(each)


def _chip(design: Design) -> str:
    """The grid of PEs, the global memory below it, and the channels below that."""
    chip = design.chip
    across, down = (min(side, _MOST_DRAWN) for side in chip.pes)
    side = min(60.0, _WIDTH / across, 240.0 / down)
    marks: list[str] = []
    l1 = ", ".join(show_bytes(size) for size in chip.l1_bytes)
    note = (
        f"PE: array of {chip.array[0]} x {chip.array[1]} {chip.number} multipliers, "
        f"{chip.vector_lanes} lanes, memories of {l1}"
    )
    border = 'stroke="#333" stroke-width="0.5"'
    for x in range(across):
        for y in range(down):
            corner = (x * side, y * side)
            marks.append(box(corner, (side * 0.9, side * 0.9), "#dce9f5", note, border))
            inner = (corner[0] + side * 0.1, corner[1] + side * 0.1)
            marks.append(box(inner, (side * 0.5, side * 0.5), _COLOURS["arrays"], note))
            beside = (corner[0] + side * 0.65, corner[1] + side * 0.1)
            marks.append(box(beside, (side * 0.2, side * 0.7), _COLOURS["l1"], note))
    below, width = down * side + 10, across * side
    if chip.global_bytes:
        rate = show_si(chip.global_bytes_per_s, "B/s")
        shown = f"global memory: {show_bytes(chip.global_bytes)}, {rate}"
        marks.append(box((0, below), (width, 30), _COLOURS["global"], shown))
        below += 40
    for channel in range(chip.dram_channels):
        part = width / chip.dram_channels
        rate = show_si(chip.dram_channel_bytes_per_s, "B/s")
        shown = f"{chip.dram}: {show_bytes(chip.dram_channel_bytes)}, {rate}"
        corner = (channel * part, below)
        marks.append(box(corner, (part * 0.95, 20), _COLOURS["dram"], shown))
    legend = (
        f"{chip.pes[0]} x {chip.pes[1]} PEs, {note.removeprefix('PE: ')}; "
        f"{chip.dataflow} stationary, {chip.clock_hz / 1e6:.0f} MHz, "
        f"{chip.node_nm:g} nm; global memory "
        f"{show_bytes(chip.global_bytes)}; {chip.dram} at "
        f"{show_si(chip.dram_bytes_per_s, 'B/s')}"
    )
    return f"<p>{escape(legend)}</p>{svg((_WIDTH, below + 20), marks)}"


def _bar(parts: dict[str, float], unit: str) -> str:
    """One bar of parts side by side, and a table of them."""
    total, x, marks = math.fsum(parts.values()), 0.0, list[str]()
    for part, value in parts.items():
        width = _WIDTH * value / total
        note = f"{part}: {_figure(value, unit)}, {show_share(value / total)}"
        marks.append(box((x, 0), (width, 30), _COLOURS[part], note))
        x += width
    rows = [(p, _figure(v, unit), show_share(v / total)) for p, v in parts.items()]
    return svg((_WIDTH, 32), marks) + table(("part", ">figure", ">share"), rows)


def _figure(value: float, unit: str) -> str:
    return f"{value:.1f} mm2" if unit == "mm2" else show_si(value, unit)


def _layers(found: Evaluation) -> str:
    """A bar for each layer, in order, as wide as its share of the time."""
    x, marks = 0.0, list[str]()
    for layer in found.by_op:
        width = _WIDTH * layer.times * layer.seconds / found.seconds
        parts = ", ".join(f"{p} {show_seconds(s)}" for p, s in layer.parts_s.items())
        note = f"{layer.name} x {layer.times}: {show_seconds(layer.seconds)} ({parts})"
        border = 'stroke="#fff" stroke-width="0.3"'
        marks.append(box((x, 0), (width, 40), _COLOURS[layer.bound], note, border))
        x += width
    totals: dict[str, float] = {}
    for layer in found.by_op:
        spent = layer.times * layer.seconds
        totals[layer.bound] = totals.get(layer.bound, 0.0) + spent
    rows = [
        (b, show_seconds(s), show_share(s / found.seconds)) for b, s in totals.items()
    ]
    return svg((_WIDTH, 42), marks) + table(("bound by", ">time", ">share"), rows)


def _roofline(found: Evaluation) -> str:
    """Each product at its operations per byte and its rate, on logarithmic scales."""
    chip, height = found.design.chip, 260.0
    points = [
        (layer, flops / max(layer.dram_bytes, 1.0), flops / layer.seconds)
        for layer in found.by_op
        if layer.mapping is not None
        for flops in [_flops(layer, found)]
    ]
    if not points:
        return "<p>No layer has a product.</p>"
    low_x, high_x = 0.1, max(1e4, *(x for _, x, _ in points))
    high_y = chip.flops_per_s * 1.2
    low_y = high_y / 1e5

    def at(x: float, y: float) -> tuple[float, float]:
        across = math.log(max(x, low_x) / low_x) / math.log(high_x / low_x)
        up = math.log(max(y, low_y) / low_y) / math.log(high_y / low_y)
        return across * _WIDTH, (1 - up) * height

    ridge = chip.flops_per_s / chip.dram_bytes_per_s
    corners = (
        at(low_x, low_x * chip.dram_bytes_per_s),
        at(ridge, chip.flops_per_s),
        at(high_x, chip.flops_per_s),
    )
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)
    marks = [f'<polyline points="{line}" fill="none" stroke="#333"/>']
    for layer, intensity, rate in points:
        x, y = at(intensity, rate)
        note = f"{layer.name}: {intensity:.1f} FLOP/B, {show_si(rate, 'FLOP/s')}"
        marks.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{_COLOURS[layer.bound]}">'
            f"<title>{escape(note)}</title></circle>"
        )
    return svg((_WIDTH, height), marks, 8.0)


def _flops(layer: LayerResult, found: Evaluation) -> float:
    """Operations of the product of a layer, in one execution."""
    made = next(each for each in found.workload.layers if each.name == layer.name)
    return 0.0 if made.product is None else 2.0 * made.product.extents.multiply_adds


def _schedules(found: Evaluation) -> str:
    longest = sorted(found.by_op, key=lambda layer: -layer.times * layer.seconds)
    rows = [
        (layer.name, line)
        for layer in longest[:8]
        if layer.mapping is not None
        for line in layer.mapping.schedule.splitlines()
    ]
    return table(("layer", "schedule"), rows)
