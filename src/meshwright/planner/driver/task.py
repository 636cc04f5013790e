"""The task of one search: a program, the meshes to try, and the limits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from meshwright.machine import Mesh
from meshwright.partitioner.lower import Gather
from meshwright.planner.candidates.proposal import OnProgress, ValueOf
from meshwright.planner.integer_program.integer_program import IntegerProgram
from meshwright.planner.solve.optimum import Choices
from meshwright.planner.solve.space import Space


def ignore_progress(text: str) -> None:
    """A progress function that does nothing."""


@dataclass(frozen=True, slots=True)
class EarlierSearch:
    """The result of a search of the program before a rewrite, on the task's one mesh.

    model, choices: its integer program on this mesh, and the best solution.
    num_solved, num_meshes: meshes that it solved, and that it was given.
    """

    model: IntegerProgram
    choices: Choices
    num_solved: int
    num_meshes: int


@dataclass(frozen=True, slots=True)
class SearchTask:
    """One program, the meshes to try, and the objective.

    limit: bytes of a device. value_of: the objective; smaller is better.
    memory_share: share of the limit that the plans of integer programs may take.
    earlier: the search that this one continues with a rewritten program, if any.
    """

    space: Space
    meshes: Sequence[Mesh]
    limit: float
    value_of: ValueOf
    on_progress: OnProgress = ignore_progress
    gather: Gather = Gather.SHARED
    memory_share: float = 1.0
    earlier: EarlierSearch | None = None
