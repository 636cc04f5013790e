"""Plans that take less memory than the fastest, where memory counts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from meshwright.machine import Mesh
from meshwright.planner.candidates.expert_plans import Experts
from meshwright.planner.candidates.meshes import shape_text
from meshwright.planner.candidates.proposal import Proposal, counts_memory
from meshwright.planner.driver.programs import FIRST_TURNS, SHORTEST_S, Programs
from meshwright.planner.solve.frontier import frontier
from meshwright.planner.solve.optimum import Choices, Optimum

_FOR_NEXT = 0.5
"""Of the time what the next mesh gets, and of its time what the next limit gets."""


def find_smaller(
    programs: Programs, experts: Experts, ends: float
) -> Iterator[Proposal]:
    """On the meshes in turn, until the clock says `ends`, each when it is found."""
    own = programs.own
    for mesh in programs.by_promise():
        if mesh not in own or not counts_memory(programs.value_of, own[mesh]):
            break
        until = programs.clock() + _FOR_NEXT * (ends - programs.clock())
        yield from _find_on(programs, mesh, experts.choices_on(mesh), until)


def _find_on(
    programs: Programs, mesh: Mesh, experts: Sequence[Choices], ends: float
) -> Iterator[Proposal]:
    own, priced = programs.own[mesh], programs.priced[mesh]

    def ask(limit: float, known: Optimum) -> Optimum:
        gib = limit / 2**30
        programs.on_progress(f"less than {gib:.3g} GiB on {shape_text(mesh)}")
        seconds = max(_FOR_NEXT * (ends - programs.clock()), SHORTEST_S)
        starts = [known.choices, *experts]
        job = programs.ask(priced, seconds, FIRST_TURNS, starts, limit=limit)
        return job.result()

    def value(seconds: float, num_bytes: float) -> float:
        plan = replace(own, seconds=seconds, bytes=num_bytes)
        return programs.value_of(plan.candidate)

    first = Optimum(own.choices, own.seconds, own.bytes, 0.0)
    for optimum in frontier(first, ask, value, lambda: programs.clock() >= ends):
        yield programs.proposal(mesh, replace(optimum, bound=0.0))
