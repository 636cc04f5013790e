"""Nodes until a packing is found: complete search, restarts, and learned backtracking.

Generated problems with a known packing, other ones than those of training, and MiniMalloc's
suite if FOLDER is given. Kept are those that the four complete orders of the portfolio do
not solve within `--tail` nodes each. Every method then searches in a random order of
buffers, with the same seeds and the same number of nodes: the complete search goes on, the
second begins again in another order after 20,000 nodes times Luby's sequence, the third
gives up what the trees call hopeless and begins again once all is given up, the fourth
does both.

    python -m benchmarks allocation backtracking [FOLDER] [--problems 100] [--nodes 2000000]
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from benchmarks.allocation.allocation_instances import known_packing
from benchmarks.harness import Options, benchmark, option
from meshwright.features.allocate import Buffer, read_buffers
from meshwright.features.allocate.canonical.backtracking_trees import (
    no_trees,
    shipped_trees,
)
from meshwright.features.allocate.canonical.depth_first import new_state, run
from meshwright.features.allocate.canonical.packing_state import (
    FOUND,
    OPEN,
)
from meshwright.features.allocate.portfolio import luby
from meshwright.features.allocate.problem.sections import BufferColumns, columns_of

METHODS = ("complete", "restarts", "learned", "learned, restarts")
FIRST_SEED = 5 * 10**6


def nodes_to_packing(
    columns: BufferColumns, capacity: int, method: str, seed: int, most: int
) -> tuple[int, bool, int]:
    """Nodes that a method has used, whether it found a packing, and frames given up."""
    rng = np.random.default_rng(seed)
    trees = shipped_trees() if "learned" in method else no_trees()
    used = given_up = 0
    for turn in luby():
        noise = np.exp(rng.normal(0.0, 0.3, len(columns.size)))
        state = new_state(columns, capacity, "AWT", noise)
        limit = most - used
        if "restarts" in method:
            limit = min(limit, 20_000 * turn)
        outcome = run(columns, state, trees, limit)
        used += int(state.scalars["nodes"][0])
        given_up += int(state.scalars["given_up"][0])
        if outcome == FOUND or used >= most:
            return used, outcome == FOUND, given_up
        if outcome != OPEN and not state.scalars["given_up"][0]:
            return used, False, given_up
    raise AssertionError


def problems(
    folder: Path | None, number: int
) -> Iterator[tuple[str, list[Buffer], int]]:
    """Names, buffers and capacities."""
    if folder is not None:
        for file in sorted(folder.glob("?.*.csv")):
            yield file.stem, list(read_buffers(file)), int(file.suffixes[0][1:])
    for seed in range(number):
        buffers, _, capacity = known_packing(40 + seed % 160, FIRST_SEED + seed)
        yield f"generated {seed}", list(buffers), int(capacity * (1 + seed % 3 * 0.01))


def is_in_tail(columns: BufferColumns, capacity: int, tail: int) -> bool:
    """Whether none of the portfolio's orders answers within so many nodes."""
    ones = np.ones(len(columns.size))
    return all(
        run(columns, new_state(columns, capacity, order, ones), no_trees(), tail)
        == OPEN
        for order in ("WAT", "TAW", "TWA")
    )


@benchmark(
    option("folder", type=Path, nargs="?"),
    option("--problems", type=int, default=100),
    option("--tail", type=int, default=50_000),
    option("--nodes", type=int, default=2_000_000),
    option("--seeds", type=int, default=3),
)
def main(options: Options) -> None:
    """Print a row per method: problems solved, median and mean nodes, seconds."""
    kept: list[tuple[BufferColumns, int]] = []
    for _, buffers, capacity in problems(options.folder, options.problems):
        columns = columns_of(_fixed_last(buffers))
        if is_in_tail(columns, capacity, options.tail):
            kept.append((columns, capacity))
    print(f"{len(kept)} problems in the tail")
    print("| method | seed | solved | mean nodes | median nodes | given up | s |")
    print("|---|---|---|---|---|---|---|")
    for seed in range(options.seeds):
        for method in METHODS:
            begin_s = time.process_time()
            rows = [
                nodes_to_packing(c, capacity, method, seed, options.nodes)
                for c, capacity in kept
            ]
            nodes = [used for used, _, _ in rows]
            options.note(f"{method}/{seed}/mean nodes", statistics.mean(nodes), "nodes")
            print(
                f"| {method} | {seed} | {sum(ok for _, ok, _ in rows)} | "
                f"{statistics.mean(nodes):.0f} | {statistics.median(nodes):.0f} | "
                f"{sum(given for *_, given in rows)} | "
                f"{time.process_time() - begin_s:.1f} |",
                flush=True,
            )


def _fixed_last(buffers: Sequence[Buffer]) -> tuple[Buffer, ...]:
    free = [b for b in buffers if b.offset is None]
    return (*free, *(b for b in buffers if b.offset is not None))


if __name__ == "__main__":
    main()
