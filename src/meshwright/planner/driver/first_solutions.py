"""The first solution of each mesh's integer program, as many as time allows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from meshwright.machine import Mesh
from meshwright.planner.candidates.expert_plans import spread_over_axes
from meshwright.planner.driver.mesh_programs import FIRST_ROUNDS, WHOLE_S, MeshPrograms
from meshwright.planner.integer_program.projection import carry_over
from meshwright.planner.solve.optimum import Choices, Optimum
from meshwright.planner.solve.space import Priced, solving_s

_PRICING_GROWTH = {2: 3.0, 3: 7.0}
"""By number of axes: time to price a mesh, relative to one of an axis less. Measured
from one axis to two: 1.5 to 5."""

_FOR_EXPERTS = 1.5
"""Time to read and simulate expert plans on the first mesh, in pricings of that mesh.
Measured: 0.3 to 1.7."""

_FEW = 3
"""Meshes that are solved at the expense of better solutions of other meshes: a program
that cannot be sharded along one axis is far from its best on the mesh of one axis."""


@dataclass
class FirstSolutions:
    """Prices meshes one after another, while the solver process solves those before."""

    programs: MeshPrograms
    _pricing_s: dict[int, float] = field(default_factory=dict[int, float])  # by axes
    _first_pricing_s: float = 0.0

    def solve(self, soon: float, late: float, meanwhile: Callable[[], object]) -> None:
        """Solve each unsolved mesh whose solution can be expected in time.

        The first mesh is solved in any case, `_FEW` meshes until the clock reads `late`,
        the others until `soon`. meanwhile: called while the last solves are under way.
        """
        programs, clock = self.programs, self.programs.budget.clock
        meshes = programs.task.meshes
        jobs: list[tuple[Mesh, Future[Optimum]]] = []
        unsolved = programs.unsolved
        num_solved = len(meshes) - len(unsolved)
        for number, mesh in enumerate(unsolved):
            is_first = mesh is meshes[0]
            ends = late if num_solved + len(jobs) < _FEW else soon
            needed = self._expected_pricing_s(mesh)
            needed += _FOR_EXPERTS * self._first_pricing_s
            if not is_first and clock() + needed >= ends:
                continue
            priced = self._price(mesh)
            if not is_first and clock() + solving_s(priced) >= ends:
                continue
            if jobs:
                # Wait for the first job, and for all but the last, which may take long.
                self._collect(jobs, max(1, len(jobs) - 1))
            share = (soon - clock()) / (len(unsolved) - number)
            starts, stop_bound = self._starts(priced), programs.stop_bound()
            seconds = max(share, WHOLE_S)
            job = programs.submit(priced, seconds, FIRST_ROUNDS, starts, stop_bound)
            jobs.append((mesh, job))
        if not all(job.done() for _, job in jobs):
            meanwhile()
        self._collect(jobs, len(jobs))

    def _price(self, mesh: Mesh) -> Priced:
        programs, clock = self.programs, self.programs.budget.clock
        began = clock()
        programs.task.on_progress(f"pricing {mesh}")
        priced = programs.priced[mesh] = programs.task.space.price(mesh)
        self._pricing_s[len(mesh.axes)] = clock() - began
        self._first_pricing_s = self._first_pricing_s or clock() - began
        return priced

    def _expected_pricing_s(self, mesh: Mesh) -> float:
        """Seconds to price a mesh, estimated from meshes of as many axes or one less."""
        count = len(mesh.axes)
        fewer = self._pricing_s.get(count - 1, 0.0)
        return self._pricing_s.get(count, _PRICING_GROWTH.get(count, 1.0) * fewer)

    def _starts(self, priced: Priced) -> list[Choices]:
        """Solutions of the mesh of one axis, and of an earlier search, carried over."""
        programs, starts = self.programs, list[Choices]()
        first, earlier = programs.task.meshes[0], programs.earlier
        if len(first.axes) == 1 and first in programs.solutions:
            choices = programs.solutions[first].choices
            spread = spread_over_axes(choices, programs.priced[first], priced)
            if spread is not None:
                starts.append(spread)
                programs.spread[priced.work.mesh] = spread
        if earlier is not None:
            model = earlier.priced[first].model
            choices = earlier.solutions[first].choices
            starts.append(carry_over(model, choices, priced.model))
        return starts

    def _collect(self, jobs: Sequence[tuple[Mesh, Future[Optimum]]], most: int) -> None:
        """Wait for the first so many jobs, and note each solution once."""
        for mesh, job in jobs[:most]:
            if mesh not in self.programs.solutions:
                self.programs.note(mesh, job.result())
