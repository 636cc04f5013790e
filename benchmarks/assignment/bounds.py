"""Bounds of integer programs that choose shardings: by messages and by subgradients.

Both run on the same presolved problem, one after the other, on one thread. Messages run
until they gain no more; subgradients then run several times as long, with the tables of
the solver's first elimination. Bounds are divided by the cost that the solver finds in the
time that both took.

    python -m benchmarks assignment bounds [--times 10]
"""

from __future__ import annotations

import importlib
import time

import numpy as np
from rich.console import Console
from rich.table import Table

import meshwright as mw
from benchmarks.harness import STORED, Options, benchmark, option
from meshwright.machine import load_machine
from meshwright.planner.candidates.meshes import meshes_of
from meshwright.planner.solve.space import Space
from meshwright.search.assignment import Assignment, Clock, SolveOptions, solve
from meshwright.search.assignment.bounds.dual import DualBound, ascend
from meshwright.search.assignment.bounds.message_passing import Messages
from meshwright.search.assignment.eliminate.order import plan_within
from meshwright.search.assignment.incumbent.incumbent import Incumbent
from meshwright.search.assignment.presolve.presolve import merge
from meshwright.search.assignment.problem.reduced_problem import finite_graph
from meshwright.search.assignment.warm import warm

CASES = (
    ("gpt3:t24", "h100"),
    ("gpt:t32", "tpu-v5p"),
    ("serving:it32", "tpu-v5p"),
    ("wavenet:teacher", "h100"),
    ("gns:edges_8192", "tpu-v5e"),
    ("lstm:big_lstm", "h100"),
)
"""Programs and machines; the mesh is the second one that a search tries, of two axes."""

CHIPS = {"tpu-v5e": 32, "tpu-v5p": 64, "h100": 64}


def program_of(target: str, machine_name: str) -> Assignment:
    """The integer program of one case, without memory limit."""
    module, name = target.split(":")
    workload = importlib.import_module(f"zoo.{module}").workload
    (make,) = (f for f in workload.full if f.__name__ == name)
    fn, args = make()
    machine = load_machine(machine_name, None, CHIPS[machine_name])
    mesh = meshes_of(machine)[1]
    captured = mw.partition(fn, mesh).capture(*args)
    pricer = Space(captured, machine).price(mesh).pricer
    return pricer.program(np.zeros(pricer.live_counts.num_times))


def run_case(problem: Assignment, times: float) -> dict[str, float]:
    """Seconds and bounds of both, and the best known cost."""
    started = time.perf_counter()
    reduced, memory = merge(problem)
    graph = finite_graph(reduced)
    messages = Messages(graph, reduced.costs)
    before, bound = -np.inf, messages.sweep(10)
    while bound - before > 2e-4 * abs(bound):
        before, bound = bound, messages.sweep(10)
    messages_s = time.perf_counter() - started
    found = solve(
        problem, (1 + times) * messages_s, options=SolveOptions(rounds=10_000)
    )
    incumbent = Incumbent(
        reduced,
        memory,
        Clock(time.perf_counter(), times * messages_s),
        SolveOptions(),
        None,
    )
    incumbent.cost = found.cost  # what subgradients step towards
    silent = Messages(graph, reduced.costs)
    ascend(DualBound(incumbent, plan_within(graph, 1e6), silent), 1_000_000)
    return {
        "nodes": reduced.num_nodes,
        "pairs": len(reduced.graph.tables),
        "messages_s": messages_s,
        "messages": messages.bound / found.cost,
        "subgradients": incumbent.bound / found.cost,
        "solver": found.bound / found.cost,
    }


@benchmark(option("--times", type=float, default=10.0), out=STORED)
def main(options: Options) -> None:
    """Run all cases and print a table."""
    times = options.times
    warm()
    table = Table(
        "program", "nodes", "pairs", "messages, s", "bound", f"{times:g} times"
    )
    rows = {}
    for target, machine in CASES:
        row = rows[f"{target} {machine}"] = run_case(program_of(target, machine), times)
        table.add_row(
            f"{target} {machine}", f"{row['nodes']:,}", f"{row['pairs']:,}",
            f"{row['messages_s']:.2f}", f"{row['messages']:.4f}",
            f"{row['subgradients']:.4f}",
        )  # fmt: skip
    Console().print(table)
    told = {"times": times, "cases": rows}
    options.save(told)


if __name__ == "__main__":
    main()
