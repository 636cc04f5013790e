"""Generated chips, from which a floorplan policy may learn without seeing real ones.

Blocks have places in a hidden layout, and nets join near ones, so that a chip has a good
floorplan. Sizes, fill, grid and wires differ from chip to chip.
"""

import numpy as np

from meshwright.codesign import floorplan as fp
from tests.features.codesign.floorplan.chips import node

MACROS, PORTS = (10, 31), (8, 24)
"""Least and largest number of macros and of ports; soft macros: 1 to 1.5 a macro."""


def generated_chip(seed: int) -> fp.ChipPlacement:
    """A chip with its canvas; macros and soft macros have no places yet."""
    rng = np.random.default_rng([seed, 48])
    macros, ports = int(rng.integers(*MACROS)), int(rng.integers(*PORTS))
    softs = int(macros * rng.uniform(1.0, 1.5))
    width, height = _sizes(rng, macros, softs)
    area = float((width * height).sum())
    aspect = rng.uniform(0.7, 1.4)
    canvas_width = (area / rng.uniform(0.45, 0.65) * aspect) ** 0.5
    size = np.array([canvas_width, canvas_width / aspect])
    columns, rows = (int(n) for n in rng.integers(10, 17, 2))
    hidden = rng.random((macros + softs + ports, 2))
    sides = rng.integers(0, 4, ports)
    hidden[-ports:][sides < 2, 0] = sides[sides < 2]
    hidden[-ports:][sides >= 2, 1] = sides[sides >= 2] - 2
    nets = _nets(rng, hidden, macros + softs)
    nodes = _nodes((width, height), hidden[-ports:] * size, macros, nets)
    wires = sum(len(sinks) * 0.3 for _, sinks, _ in nets) * rng.uniform(4.0, 9.0)
    canvas = fp.Canvas(
        float(size[0]),
        float(size[1]),
        columns,
        rows,
        routes_across=wires / size[1],
        routes_up=wires / size[0],
        macro_across=0.5 * wires / size[1],
        macro_up=0.5 * wires / size[0],
    )
    return fp.start_of(fp.make_netlist(nodes), canvas)


def _sizes(rng: np.random.Generator, macros: int, softs: int):
    """Widths and heights: a few kinds of macros, and soft macros of half their area."""
    kinds = rng.integers(2, 5)
    areas, ratios = rng.lognormal(6, 0.6, kinds), rng.uniform(0.4, 2.5, kinds)
    kind = rng.integers(0, kinds, macros)
    width = np.sqrt(areas[kind] * ratios[kind])
    soft = rng.lognormal(0, 0.5, softs)
    soft *= rng.uniform(0.3, 0.7) * areas[kind].sum() / soft.sum()
    return (
        np.concatenate([width, np.sqrt(soft)]),
        np.concatenate([areas[kind] / width, np.sqrt(soft)]),
    )


def _nets(rng: np.random.Generator, hidden, movable: int):
    """Nets as source, sinks and weight: each block drives some of its neighbours."""
    nets = []
    for source in range(len(hidden)):
        away = np.linalg.norm(hidden - hidden[source], axis=1)
        away[source] = np.inf
        for _ in range(int(rng.integers(1, 5)) if source < movable else 1):
            count = int(rng.integers(1, 4))
            near = np.argsort(away * rng.lognormal(0, 0.5, len(away)))[:count]
            nets.append((source, near.tolist(), float(rng.choice((1, 1, 2, 8)))))
    return nets


def _nodes(sizes, ports, macros: int, nets):
    """Nodes of the netlist; a pin for each end of a net lies at the macro's centre."""
    width, height = sizes
    blocks, pins = [], []
    names = [f"{'M' if i < macros else 'Grp_'}{i}" for i in range(len(width))]
    for i, name in enumerate(names):
        kind = "MACRO" if i < macros else "macro"
        place = {"x": 0.0, "y": 0.0}
        size = {"width": float(width[i]), "height": float(height[i])}
        blocks.append(node(name, kind, **size, **place))
        pins.append(_pin(name, f"{name}/in", 1.0))
    ends = [f"{name}/in" for name in names] + [f"P{i}" for i in range(len(ports))]
    driven: dict[int, list[str]] = {}
    for number, (source, sinks, weight) in enumerate(nets):
        inputs = [ends[sink] for sink in sinks]
        if source < len(names):
            name = names[source]
            pins.append(_pin(name, f"{name}/out{number}", weight, *inputs))
        else:
            driven.setdefault(source - len(names), []).extend(inputs)
    gates = [
        node(
            f"P{i}",
            "PORT",
            *driven.get(i, ()),
            side="LEFT",
            x=float(x),
            y=float(y),
        )
        for i, (x, y) in enumerate(ports)
    ]
    return [*gates, *blocks, *pins]


def _pin(macro: str, name: str, weight: float, *inputs: str):
    offsets = {"x_offset": 0.0, "y_offset": 0.0}
    return node(name, "MACRO_PIN", *inputs, macro_name=macro, weight=weight, **offsets)
