"""States per second of propagation: `Propagator` on objects, and compiled over columns.

The same random walks, each of a dozen cuts of inputs, are made three times: by
`Propagator`, over columns with one group per node, which is the same work, and over the
columns of the symmetry-reduced graph, which tree search uses. The three run alternately,
so that other work on the machine slows all of them alike.

    python -m benchmarks search propagation_speed [--target gpt:t32] [--walks 10]
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Iterator
from importlib import import_module
from statistics import median
from typing import NamedTuple

from benchmarks.harness import STORED, Options, benchmark, option

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import numpy as np

import meshwright as mw
from meshwright.machine import Mesh
from meshwright.partitioner.decide import start_workspace
from meshwright.partitioner.propagate import Graph
from meshwright.partitioner.tactics import Workspace
from meshwright.planner.columns.graph_columns import columns_of
from meshwright.planner.columns.propagation import cut, new_worklist
from meshwright.planner.columns.state_cells import start_cells
from meshwright.planner.strategies.symmetry import (
    ReducedGraph,
    Runs,
    group_nodes,
    reduce_by_symmetry,
    split_by_inputs,
)

MESH = Mesh({"batch": 8, "model": 4})
MOST_CUTS = 12

type NodeCut = tuple[int, str, int]
"""A node, a sub-axis and a factor."""


class Timed(NamedTuple):
    """States that one walk reached, and the seconds that they took."""

    states: int
    seconds: float


def walks_of(work: Workspace, num_walks: int) -> Iterator[list[NodeCut]]:
    """Random cuts of inputs; most are legal, some are not."""
    rng, axes = random.Random(0), list(work.state.size)
    inputs = [node for node in work.graph.input_nodes if node.sizes]
    for _ in range(num_walks):
        nodes = rng.choices(inputs, k=MOST_CUTS)
        yield [(n.index, rng.choice(axes), rng.randrange(len(n.sizes))) for n in nodes]


def walk_propagator(work: Workspace, walk: list[NodeCut]) -> Timed:
    """The cuts of a walk by `Propagator`, undone afterwards."""
    mark, nodes, states = work.state.mark(), work.graph.nodes, 0
    began = time.perf_counter()
    for index, axis, factor in walk:
        states += work.propagator.cut(nodes[index], axis, factor) is None
    seconds = time.perf_counter() - began
    work.state.rollback(mark)
    return Timed(states, seconds)


class ColumnWalker:
    """Walks over the columns of a reduced graph."""

    def __init__(self, work: Workspace, reduced: ReducedGraph) -> None:
        self.reduced = reduced
        self.axes = list(work.state.size)
        self.columns = columns_of(work.state, reduced)
        self.start = start_cells(self.columns, work.state, reduced)
        self.worklist = new_worklist(self.columns)

    def walk(self, walk: list[NodeCut]) -> Timed:
        """Each state is a copy, as tree search needs it."""
        cells, states = np.array(self.start), 0
        began = time.perf_counter()
        for index, axis, factor in walk:
            cells = cells.copy()
            group, number = self.reduced.class_of[index], self.axes.index(axis)
            states += cut(self.columns, cells, self.worklist, group, number, factor)
        return Timed(states, time.perf_counter() - began)


def measure(target: str, num_walks: int) -> dict[str, object]:
    """Median states per second of each way, and its ratio to the propagator's."""
    module, name = target.split(":")
    fn, args = getattr(import_module(f"zoo.{module}"), name)()
    captured = mw.partition(fn, MESH).capture(*args)
    work = start_workspace(captured, MESH, Graph(captured.program, captured.ties))
    single = group_nodes(Runs(work.graph), range(len(work.graph.nodes)))
    reduced = split_by_inputs(work.graph, reduce_by_symmetry(work.state))
    walkers = {
        "columns, one node a group": ColumnWalker(work, single),
        "columns, reduced graph": ColumnWalker(work, reduced),
    }
    rates: dict[str, list[float]] = {name: [] for name in ("propagator", *walkers)}
    walks = list(walks_of(work, num_walks))
    for walker in walkers.values():
        walker.walk(walks[0])  # compiles
    for walk in walks:
        found = {"propagator": walk_propagator(work, walk)}
        found |= {name: walker.walk(walk) for name, walker in walkers.items()}
        assert found["propagator"].states == found["columns, one node a group"].states
        for name, timed in found.items():
            rates[name].append(timed.states / timed.seconds)
    slow = median(rates["propagator"])
    return {
        "target": target,
        "nodes": len(work.graph.nodes),
        "groups": len(reduced.classes),
        "walks": num_walks,
        "states_per_s": {name: round(median(own), 1) for name, own in rates.items()},
        "times_propagator": {
            name: round(median(own) / slow, 1) for name, own in rates.items()
        },
    }


@benchmark(
    option("--target", default="gpt:t32"),
    option("--walks", type=int, default=10),
    out=STORED,
)
def main(options: Options) -> None:
    """Measure, print and write JSON."""
    found = measure(options.target, options.walks)
    options.save(found)
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
