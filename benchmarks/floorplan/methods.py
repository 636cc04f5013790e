"""Methods of placement by time: the least proxy that each one reaches.

    python -m benchmarks floorplan methods --minutes 1
    python -m benchmarks floorplan methods --minutes 5 30 --only ariane

Chips: Ariane133 (NanGate45); its netlist beside its mirror image, with a net between the
halves of each macro; and Ariane133 made flat and grouped by Meshwright. The last two are
made here. `--cpu` counts half the CPU seconds of the process in place of seconds, for
machines that others use, too. A case that the results have is not run again.
"""

import time
from dataclasses import replace

import numpy as np

from benchmarks.harness import ONLY, STORED, Options, benchmark, option
from meshwright.codesign import floorplan as fp
from meshwright.features.codesign.floorplan.netlist.protobuf import NetlistNode
from tests.features.codesign.floorplan.chips import ARIANE, ariane
from tests.features.codesign.floorplan.test_group import flat_of


def two_cores() -> float:
    """CPU seconds of this process, as seconds on two cores that are always busy."""
    return time.process_time() / 2


METHODS = ("descent", "anneal", "analytic", "policy", "auto")


def published() -> fp.ChipPlacement:
    """Ariane133 on its published canvas, with the published groups."""
    return fp.read_placement(ariane(), ARIANE / "initial.plc")


def own_groups() -> fp.ChipPlacement:
    """Ariane133 made flat, and grouped by Meshwright."""
    flat, _ = flat_of(ariane())
    frame, start = published(), fp.start_of(flat)
    x, y = start.x.copy(), start.y.copy()
    for name, block in flat.block_of_name.items():
        before = frame.netlist.block_of_name.get(name)
        if before is not None:
            x[block], y[block] = frame.x[before], frame.y[before]
    placed = replace(start, canvas=frame.canvas, x=x, y=y)
    return fp.group(flat, placed)


def mirrored_pair() -> fp.ChipPlacement:
    """Two copies of Ariane133 side by side, the right one mirrored, and joined.

    The first pin of each macro that drives a net drives its image's first pin, too.
    """
    frame = published()
    width, count = frame.canvas.width, len(frame.netlist.nodes)
    nodes = [*frame.netlist.nodes, *(_image(n, width) for n in frame.netlist.nodes)]
    joined = set[str]()
    for i, each in enumerate(frame.netlist.nodes):
        macro = each.text("macro_name")
        if macro and each.inputs and macro not in joined:
            joined.add(macro)
            image = nodes[count + i].name
            nodes[i] = replace(each, inputs=(*each.inputs, image))
    canvas = replace(frame.canvas, width=2 * width, columns=2 * frame.canvas.columns)
    placed = fp.start_of(fp.make_netlist(nodes), canvas)
    return replace(placed, is_fixed=np.tile(frame.is_fixed, 2))


def _image(each: NetlistNode, width: float) -> NetlistNode:
    """The mirror image of a node in the right half of a canvas twice as wide."""
    values = dict(each.attributes)
    x = float(each.text("x") or 0.0)
    values["x"] = f"f: {2 * width - x!r}"
    if "x_offset" in values:
        values["x_offset"] = f"f: {-float(each.text('x_offset') or 0)!r}"
    if "macro_name" in values:
        values["macro_name"] = f'placeholder: "{_other(each.text("macro_name") or "")}"'
    inputs = tuple(_other(name) for name in each.inputs)
    return NetlistNode(_other(each.name), inputs, values, 0)


def _other(name: str) -> str:
    return f"Grp_mirror_{name}" if name.startswith("Grp_") else f"mirror_{name}"


CHIPS = {
    "ariane133": published,
    "mirrored pair": mirrored_pair,
    "own groups": own_groups,
}


def place_for(frame: fp.ChipPlacement, method: str, seconds: float, options: Options):
    """Figures of one placement."""
    begin = time.process_time()
    found = fp.place(
        frame.netlist,
        canvas=frame,
        method=method,
        seconds=seconds,
        seed=options.seed,
        clock=two_cores if options.cpu else time.monotonic,
    )
    assert not fp.faults_of(found.placement, frame)
    return {
        "proxy": found.proxy,
        "wirelength": found.cost.wirelength,
        "density": found.cost.density,
        "congestion": found.cost.congestion,
        "evaluations": found.evaluations,
        "seconds": found.seconds,
        "cpu_s": time.process_time() - begin,
        "stages": {name: proxy for name, _, _, proxy in found.gains},
    }


@benchmark(
    ONLY,
    option("--minutes", type=float, nargs="+", default=[1.0, 5.0, 30.0]),
    option("--cpu", action="store_true"),
    option("--methods", nargs="+", default=METHODS, choices=METHODS),
    out=STORED,
    seed=0,
)
def main(options: Options) -> None:
    """Place every chip by every method for each time, and print the tables."""
    for chip, make in CHIPS.items():
        if options.only not in chip:
            continue
        frame = make()
        for minutes in options.minutes:
            for method in options.methods:
                case = f"{method}, {minutes:g} min, seed {options.seed}"
                if case not in options.stored_part(chip):
                    figures = place_for(frame, method, 60 * minutes, options)
                    options.save_case(chip, case, figures)


if __name__ == "__main__":
    main()
