"""The three costs of a placement in plain Python, as slowly as the formulas read."""

import math
from collections import Counter

from meshwright.codesign import floorplan as fp
from meshwright.features.codesign.floorplan.netlist.netlist import NodeKind

SIGNS = {"N": (1, 1), "FN": (-1, 1), "S": (-1, -1), "FS": (1, -1), "-": (1, 1)}


def plain_costs(
    netlist: fp.Netlist, placement: fp.ChipPlacement
) -> tuple[float, float, float]:
    """Wirelength, density and congestion."""
    canvas = placement.canvas
    wires = weights = 0.0
    across, up = Counter[tuple[int, int]](), Counter[tuple[int, int]]()
    for source, sinks in enumerate(netlist.sinks):
        if not sinks:
            continue
        weight = float(netlist.nodes[source].text("weight") or 1)
        pins = [_position(netlist, placement, pin) for pin in (source, *sinks)]
        xs, ys = zip(*pins, strict=True)
        weights += weight
        wires += weight * (max(xs) - min(xs) + max(ys) - min(ys))
        cells = list(dict.fromkeys(_cell(canvas, *pin) for pin in pins))
        h, v = _route(cells)
        for cell in h:
            across[cell] += max(weight, 1.0)
        for cell in v:
            up[cell] += max(weight, 1.0)
    length = wires / ((weights or 1.0) * (canvas.width + canvas.height))
    across_use, up_use = _use(canvas, across, up)
    density = Counter[tuple[int, int]]()
    for block, index in enumerate(netlist.blocks):
        if netlist.kinds[index] is not NodeKind.PORT:
            _cover(netlist, placement, block, density, across_use, up_use)
    count = canvas.columns * canvas.rows
    size = canvas.cell_width * canvas.cell_height
    dense = [density[c] / size for c in _cells(canvas)]
    used = [use[c] for use in (across_use, up_use) for c in _cells(canvas)]
    return length, 0.5 * _top(dense, count // 10), _top(used, int(0.05 * 2 * count))


def _top(values: list[float], count: int) -> float:
    count = max(count, 1)
    return sum(sorted(values, reverse=True)[:count]) / count


def _cells(canvas: fp.Canvas) -> list[tuple[int, int]]:
    return [(c, r) for r in range(canvas.rows) for c in range(canvas.columns)]


def _position(
    netlist: fp.Netlist, placement: fp.ChipPlacement, index: int
) -> tuple[float, float]:
    block = netlist.block_of[netlist.owners[index]]
    sign = SIGNS[placement.orientations[block]]
    dx, dy = (
        float(netlist.nodes[index].text(k) or 0) for k in ("x_offset", "y_offset")
    )
    return placement.x[block] + sign[0] * dx, placement.y[block] + sign[1] * dy


def _cell(canvas: fp.Canvas, x: float, y: float) -> tuple[int, int]:
    column, row = math.floor(x / canvas.cell_width), math.floor(y / canvas.cell_height)
    return min(max(column, 0), canvas.columns - 1), min(max(row, 0), canvas.rows - 1)


def _pair(source: tuple[int, int], sink: tuple[int, int]) -> tuple[list, list]:
    h = [(c, source[1]) for c in _between(source[0], sink[0])]
    return h, [(sink[0], r) for r in _between(source[1], sink[1])]


def _between(a: int, b: int) -> range:
    return range(min(a, b), max(a, b))


def _route(cells: list[tuple[int, int]]) -> tuple[list, list]:
    """Cells of horizontal and vertical wires; the first cell is the source's."""
    if len(cells) != 3:
        pairs = [_pair(cells[0], cell) for cell in cells[1:]]
        return [c for h, _ in pairs for c in h], [c for _, v in pairs for c in v]
    (x1, y1), (x2, y2), (x3, y3) = sorted(cells)
    if x1 < x2 < x3 and min(y1, y3) < y2 < max(y1, y3):
        h = [(c, y1) for c in range(x1, x2)] + [(c, y2) for c in range(x2, x3)]
        v = [(x2, r) for r in _between(y1, y2)] + [(x3, r) for r in _between(y2, y3)]
    elif x2 == x3 and x1 < x2 and y1 < min(y2, y3):
        h = [(c, y1) for c in range(x1, x2)]
        v = [(x2, r) for r in range(y1, max(y2, y3))]
    elif y2 == y3:
        h = [(c, y1) for c in range(x1, x2)] + [(c, y2) for c in range(x2, x3)]
        v = [(x2, r) for r in _between(y1, y2)]
    else:
        (x1, y1), (x2, y2), (x3, y3) = sorted(
            cells, key=lambda cell: (cell[1], cell[0])
        )
        h = [(c, y2) for c in range(min(x1, x2, x3), max(x1, x2, x3))]
        v = [(x1, r) for r in _between(y1, y2)] + [(x3, r) for r in _between(y2, y3)]
    return h, v


def _use(canvas: fp.Canvas, across: Counter, up: Counter) -> tuple[Counter, Counter]:
    """Shares of wires in use, spread over neighbouring rows and columns."""
    reach, h, v = canvas.smoothing, Counter(), Counter()
    for c, r in _cells(canvas):
        rows = range(max(0, r - reach), min(canvas.rows, r + reach + 1))
        columns = range(max(0, c - reach), min(canvas.columns, c + reach + 1))
        for row in rows:
            share = across[c, r] / (canvas.cell_height * canvas.routes_across)
            h[c, row] += share / len(rows)
        for column in columns:
            share = up[c, r] / (canvas.cell_width * canvas.routes_up)
            v[column, r] += share / len(columns)
    return h, v


def _cover(netlist, placement, block, density, across, up):
    """Add what one block covers to the density, and what a macro takes to the wires."""
    canvas, node = placement.canvas, netlist.nodes[netlist.blocks[block]]
    width, height = (float(node.text(k) or 0) for k in ("width", "height"))
    x, y = placement.x[block], placement.y[block]
    first, last = (
        _cell(canvas, x + s * width / 2, y + s * height / 2) for s in (-1, 1)
    )

    def part(low, high, line, size):
        return max(0.0, min(high, (line + 1) * size) - max(low, line * size))

    def wide(column):
        return part(x - width / 2, x + width / 2, column, canvas.cell_width)

    def high(row):
        return part(y - height / 2, y + height / 2, row, canvas.cell_height)

    no_last = []
    for low, end, size, share in (
        (first[0], last[0], canvas.cell_width, wide),
        (first[1], last[1], canvas.cell_height, high),
    ):
        ends = (share(low), share(end))
        no_last.append(low != end and any(abs(e - size) > 1e-5 for e in ends))
    is_macro = netlist.kinds[netlist.blocks[block]] is NodeKind.MACRO
    for row in range(first[1], last[1] + 1):
        for column in range(first[0], last[0] + 1):
            w, h = wide(column), high(row)
            density[column, row] += w * h
            if not (is_macro and w > 0 and h > 0):
                continue
            if not (no_last[0] and column == last[0]):
                across[column, row] += (
                    h
                    * canvas.macro_across
                    / (canvas.cell_height * canvas.routes_across)
                )
            if not (no_last[1] and row == last[1]):
                up[column, row] += (
                    w * canvas.macro_up / (canvas.cell_width * canvas.routes_up)
                )
