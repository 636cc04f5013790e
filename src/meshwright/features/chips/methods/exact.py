"""The best partition of a small graph over chips by CP-SAT, or a lower bound on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from ortools.sat.python import cp_model

from meshwright.features.chips.problem.chip_problem import ChipProblem
from meshwright.search.arrays import Ints

_STEPS = 1_000_000
"""Number of time units into which the first partition's bottleneck is divided.

CP-SAT needs integers.
"""


@dataclass(frozen=True, slots=True, eq=False)
class ExactAnswer:
    """CP-SAT's best partition, and a lower bound on the bottleneck in seconds.

    The model counts memory for weights, but not for other values.
    """

    chips: Ints | None
    bound_s: float
    is_optimal: bool


def solve_exactly(
    problem: ChipProblem, hint: Ints, seconds: float, seed: int = 0, workers: int = 1
) -> ExactAnswer:
    """Minimise the bottleneck with CP-SAT, starting from a valid partition.

    hint: this partition.
    """
    unit_s = problem.load(hint).bottleneck_s / _STEPS
    model = cp_model.CpModel()
    build = _Model(model, problem, unit_s)
    build.hint(hint)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = seconds
    solver.parameters.random_seed = seed
    solver.parameters.num_workers = workers
    status = solver.solve(model)
    found = status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
    chips = None
    if found:
        chips = np.array([solver.value(x) for x in build.chip], np.int64)
    bound_s = max(solver.best_objective_bound * unit_s, problem.bound_s)
    return ExactAnswer(chips, bound_s, status == cp_model.OPTIMAL)


class _Model:
    """The CP-SAT model: chips of ops, edges and paths between chips, and loads."""

    def __init__(
        self, model: cp_model.CpModel, problem: ChipProblem, unit_s: float
    ) -> None:
        self.model, self.problem, self.unit_s = model, problem, unit_s
        graph, count = problem.graph, problem.module.num_chips
        self.chip = [
            model.new_int_var(0, count - 1, f"f{u}") for u in range(graph.num_ops)
        ]
        self.on: list[list[Any]] = [
            [model.new_bool_var(f"x{u}_{c}") for c in range(count)]
            for u in range(graph.num_ops)
        ]
        for place, on in zip(self.chip, self.on, strict=True):
            model.add_exactly_one(on)
            model.add(place == sum(c * x for c, x in enumerate(on)))
        self._flow(graph.edges.tolist(), count)
        self.bottleneck = model.new_int_var(0, _STEPS, "bottleneck")
        self._loads(count)
        model.minimize(self.bottleneck)

    def hint(self, chips: Ints) -> None:
        """Propose a partition from which CP-SAT starts."""
        for place, on, chip in zip(self.chip, self.on, chips.tolist(), strict=True):
            self.model.add_hint(place, chip)
            for c, x in enumerate(on):
                self.model.add_hint(x, c == chip)

    def _flow(self, edges: list[tuple[int, int]], count: int) -> None:
        """Add the static constraints: acyclic flow, no skipped chips, triangles.

        `constraints/checker.py` defines them.
        """
        model = self.model
        used = [model.new_bool_var(f"used{c}") for c in range(count)]
        for c in range(count):
            model.add_max_equality(used[c], [on[c] for on in self.on])
            if c:
                model.add_implication(used[c], used[c - 1])
        joined = {
            (a, b): model.new_bool_var(f"d{a}_{b}")
            for a in range(count)
            for b in range(a + 1, count)
        }
        path = {pair: model.new_bool_var(f"r{pair}") for pair in joined}
        for u, v in edges:
            model.add(self.chip[u] <= self.chip[v])
            for (a, b), edge in joined.items():
                model.add_bool_or(self.on[u][a].Not(), self.on[v][b].Not(), edge)
        for (a, b), edge in joined.items():
            model.add_implication(edge, path[a, b])
            for c in range(a + 1, b):
                model.add_bool_or(joined[a, c].Not(), path[c, b].Not(), path[a, b])
                model.add_bool_or(edge.Not(), joined[a, c].Not(), path[c, b].Not())

    def _loads(self, count: int) -> None:
        """Constrain the seconds of every chip and link to be within the bottleneck."""
        graph, module = self.problem.graph, self.problem.module
        steps = np.floor(graph.seconds / self.unit_s).astype(np.int64)
        for c in range(count):
            terms = [int(s) * on[c] for s, on in zip(steps, self.on, strict=True) if s]
            self.model.add(sum(terms) <= self.bottleneck)
        self._memory(count)
        sent_s = graph.value_bytes / module.link_bytes_per_s + module.latency_s
        sent = np.floor(sent_s / self.unit_s).astype(np.int64)
        readers: dict[int, list[int]] = {}
        for value, op in graph.reads.tolist():
            readers.setdefault(value, []).append(op)
        for link in range(count - 1):
            terms: list[Any] = []
            for value, ops in readers.items():
                if sent[value]:
                    terms.append(int(sent[value]) * self._crosses(value, ops, link))
            self.model.add(sum(terms) <= self.bottleneck)

    def _crosses(self, value: int, readers: list[int], link: int) -> Any:
        """A variable that is 1 if a value is sent over a link.

        Its producer is then on a chip up to the link, and a reader on a chip behind the
        link.
        """
        model = self.model
        crosses = model.new_bool_var(f"s{value}_{link}")
        before = self.on[int(self.problem.graph.producers[value])][: link + 1]
        for reader in readers:
            model.add(sum(before) + sum(self.on[reader][link + 1 :]) <= 1 + crosses)
        return crosses

    def _memory(self, count: int) -> None:
        """Constrain the weights on each chip to fit into memory (KiB, rounded down)."""
        graph, module = self.problem.graph, self.problem.module
        readers: dict[int, list[int]] = {}
        for weight, op in graph.weight_reads.tolist():
            if graph.weight_bytes[weight] >= 1024:
                readers.setdefault(weight, []).append(op)
        if graph.weight_bytes.sum() <= module.memory_bytes:
            return
        for c in range(count):
            terms: list[Any] = []
            for weight, ops in readers.items():
                there = self.model.new_bool_var(f"w{weight}_{c}")
                for op in ops:
                    self.model.add_implication(self.on[op][c], there)
                terms.append(int(graph.weight_bytes[weight] // 1024) * there)
            self.model.add(sum(terms) <= int(module.memory_bytes // 1024))
