"""Plans that take less memory than the fastest, where the objective counts memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from meshwright.machine import Mesh
from meshwright.planner.candidates.expert_plans import ExpertPlans
from meshwright.planner.candidates.meshes import shape_text
from meshwright.planner.candidates.proposal import Proposal, counts_memory
from meshwright.planner.driver.mesh_programs import (
    FIRST_ROUNDS,
    SHORTEST_S,
    MeshPrograms,
)
from meshwright.planner.solve.frontier import frontier
from meshwright.planner.solve.optimum import Choices, Optimum

_NEXT_SHARE = 0.5
"""Share of the time left for the next mesh, and of its time for the next solve."""


def find_smaller(
    programs: MeshPrograms, experts: ExpertPlans, ends: float
) -> Iterator[Proposal]:
    """Smaller plans of the most promising meshes, each as soon as it is found.

    ends: reading of the clock at which the last solve has to end.
    """
    clock = programs.budget.clock
    for mesh in programs.ranked_meshes():
        solution = programs.solutions.get(mesh)
        if solution is None:
            break
        if not counts_memory(programs.task.value_of, solution.proposal):
            break
        until = clock() + _NEXT_SHARE * (ends - clock())
        yield from _find_on(programs, mesh, experts.choices_on(mesh), until)


def _find_on(
    programs: MeshPrograms, mesh: Mesh, starts: Sequence[Choices], ends: float
) -> Iterator[Proposal]:
    """Smaller plans of one mesh; starts: expert plans, to start the solves from."""
    own, priced = programs.solutions[mesh].proposal, programs.priced[mesh]
    task, clock = programs.task, programs.budget.clock

    def solve_within(limit: float, known: Optimum) -> Optimum:
        task.on_progress(
            f"solving {shape_text(mesh)} within {limit / 2**30:.3g} GiB per device"
        )
        seconds = max(_NEXT_SHARE * (ends - clock()), SHORTEST_S)
        job = programs.submit(
            priced, seconds, FIRST_ROUNDS, [known.choices, *starts], limit=limit
        )
        return job.result()

    def value(seconds: float, num_bytes: float) -> float:
        plan = replace(own, seconds=seconds, bytes=num_bytes)
        return task.value_of(plan.candidate)

    first = Optimum(own.choices, own.seconds, own.bytes, 0.0)
    for optimum in frontier(first, solve_within, value, lambda: clock() >= ends):
        yield programs.proposal(mesh, replace(optimum, bound=0.0))
