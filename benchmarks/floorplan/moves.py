"""CPU time of an exact move against full costs, and memory of a large chip.

    python -m benchmarks floorplan moves

On Ariane133 (NanGate45): moves of random blocks to random places, and moves as annealing
tries them, with all three costs after each; the full cost in plain Python, and compiled.
Then the peak memory of reading, placing and moving 1,000 macros and 10,000 soft macros
with 100,000 pins. Exit status 1 if a figure misses its goal.
"""

import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.harness import Options, benchmark
from meshwright.codesign import floorplan as fp
from meshwright.features.codesign.floorplan.costs.state import (
    make_state,
    proxy,
    recompute,
    shift,
    take_back,
)
from meshwright.features.codesign.floorplan.costs.tables import make_tables
from meshwright.features.codesign.floorplan.placers.anneal import anneal
from meshwright.features.codesign.floorplan.placers.targets import make_walk
from meshwright.features.codesign.floorplan.starts.room import make_room
from meshwright.search.compiled import compiled
from tests.features.codesign.floorplan.chips import ARIANE, ariane, random_nodes
from tests.features.codesign.floorplan.plain_costs import plain_costs

GOALS = {
    "exact moves per second": (20_000, "at least"),
    "plain Python's full cost / move": (2_000, "at least"),
    "compiled full cost / move": (50, "at least"),
    "GiB for 11,000 blocks": (2, "at most"),
}


@compiled
def try_moves(tables, state, weights, blocks, x, y):
    """Sum of the proxies after each move, which is then undone."""
    total = 0.0
    for i in range(len(blocks)):
        block = blocks[i]
        old_x, old_y = state.x[block], state.y[block]
        shift(tables, state, block, x[i], y[i])
        total += proxy(tables, state, weights)
        state.x[block], state.y[block] = old_x, old_y
        take_back(state)
    return total


def seconds(run: Callable[[], object]) -> float:
    """CPU seconds of a function, which is called once before."""
    run()
    begin = time.process_time()
    run()
    return time.process_time() - begin


def speed(num_moves: int = 20_000) -> dict[str, float]:
    """Figures of moves on Ariane133."""
    placement = fp.read_placement(ariane(), ARIANE / "legalized.plc")
    tables, weights = make_tables(placement), np.array(fp.WEIGHTS)
    state, room = make_state(tables, placement), make_room(tables, placement)
    rng, canvas = np.random.default_rng(0), placement.canvas
    blocks = rng.choice(np.concatenate([room.hard, room.soft]), num_moves)
    x = rng.uniform(60, canvas.width - 60, num_moves)
    y = rng.uniform(70, canvas.height - 70, num_moves)
    move = seconds(lambda: try_moves(tables, state, weights, blocks, x, y)) / num_moves

    def full() -> None:
        for _ in range(50):
            recompute(tables, state)
            proxy(tables, state, weights)

    begin = time.process_time()
    plain_costs(ariane(), placement)
    plain = time.process_time() - begin
    walk, heat = make_walk(tables, room, 0), np.full(num_moves, 1e-5)
    annealed = seconds(lambda: anneal(tables, state, room, walk, weights, heat))
    return {
        "exact moves per second": 1 / move,
        "annealing moves per second": num_moves / annealed,
        "plain Python's full cost / move": plain / move,
        "compiled full cost / move": seconds(full) / 50 / move,
    }


def memory(num_moves: int = 2_000) -> float:
    """Peak GiB of this process after a large chip was read, placed and moved."""
    nodes = random_nodes(0, macros=1_000, softs=10_000, ports=500, pins_each=9)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "netlist.pb.txt"
        path.write_text(fp.make_netlist(nodes).to_text())
        netlist = fp.read(path)
    side = (netlist.area / 0.7) ** 0.5
    canvas = fp.Canvas(side, side, 60, 60, smoothing=2)
    fp.place(netlist, canvas=canvas, evaluations=num_moves, seed=0)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


@benchmark()
def main(options: Options) -> int:
    """Print each figure with its goal; 1 if one is missed."""
    figures = speed() | {"GiB for 11,000 blocks": memory()}
    missed = False
    for name, value in figures.items():
        options.note(name, value)
        goal, which = GOALS.get(name, (None, ""))
        is_met = goal is None or (
            value >= goal if which == "at least" else value <= goal
        )
        missed |= not is_met
        note = (
            "" if goal is None else f"  {which} {goal}: {'met' if is_met else 'MISSED'}"
        )
        print(f"{name:34}{value:12.4g}{note}", flush=True)
    return int(missed)


if __name__ == "__main__":
    main()
