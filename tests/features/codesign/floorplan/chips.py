"""Netlists for tests: the published ones, and random ones."""

import functools
import random
from dataclasses import replace
from pathlib import Path

from meshwright.codesign import floorplan as fp
from meshwright.features.codesign.floorplan.netlist.protobuf import (
    NetlistNode,
    parse_nodes,
)

DATA = Path(__file__).parents[3] / "data" / "floorplan"
ARIANE = DATA / "macroplacement" / "ariane133_ng45"
TILES = DATA / "circuit_training" / "macro_tiles_10x10.pb.txt.gz"
TOYS = DATA / "circuit_training"


@functools.cache
def ariane() -> fp.Netlist:
    return fp.read(ARIANE / "netlist.pb.txt.gz")


def node(name: str, kind: str, *inputs: str, **values: float | str) -> NetlistNode:
    """A node with attributes, texts in quotes."""
    texts = {
        key: f'placeholder: "{v}"' if isinstance(v, str) else f"f: {v!r}"
        for key, v in {"type": kind, **values}.items()
    }
    return NetlistNode(name, inputs, texts, 0)


def text(*nodes: NetlistNode) -> str:
    return fp.make_netlist(nodes).to_text()


def parsed(source: str) -> fp.Netlist:
    return fp.make_netlist(parse_nodes(source, "the text"))


def random_nodes(
    seed: int, macros: int = 6, softs: int = 8, ports: int = 4, pins_each: int = 3
) -> list[NetlistNode]:
    """Nodes of a chip of 100 by 80 um, with nets of 2 to 6 pins, some weighted."""
    rng = random.Random(seed)
    nodes, pins = list[NetlistNode](), list[str]()
    for i in range(ports):
        nodes.append(node(f"P{i}", "PORT", side="LEFT", x=0.0, y=rng.uniform(0, 80)))
        pins.append(f"P{i}")
    for i in range(macros + softs):
        is_hard = i < macros
        name, kind = (f"M{i}", "MACRO") if is_hard else (f"Grp_{i}", "macro")
        size = {"width": rng.uniform(2, 14), "height": rng.uniform(2, 14)}
        place = {"x": rng.uniform(8, 92), "y": rng.uniform(8, 72)}
        nodes.append(node(name, kind, **size, **place))
        for j in range(pins_each):
            offset = (rng.uniform(-1, 1), rng.uniform(-1, 1)) if is_hard else (0.0, 0.0)
            nodes.append(
                node(
                    f"{name}/p{j}",
                    "MACRO_PIN",
                    macro_name=name,
                    x_offset=offset[0],
                    y_offset=offset[1],
                    weight=float(rng.choice((1, 1, 2, 5))),
                )
            )
            pins.append(f"{name}/p{j}")
    sources = set(rng.sample(pins, len(pins) // 2))
    return [
        replace(n, inputs=tuple(rng.sample(pins, rng.randint(1, 5))))
        if n.name in sources
        else n
        for n in nodes
    ]


def random_chip(seed: int, smoothing: int = 0) -> fp.ChipPlacement:
    """A random netlist, placed at random."""
    canvas = fp.Canvas(100.0, 80.0, 9, 7, 4.0, 5.0, 2.5, 3.0, smoothing)
    return fp.start_of(fp.make_netlist(random_nodes(seed)), canvas)
