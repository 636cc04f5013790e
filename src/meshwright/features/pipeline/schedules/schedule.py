"""A schedule as data: the tasks of each submesh, in the order in which they run.

A task is one pass of one stage over one microbatch. The backward pass is either one task,
or two: gradients of the stage's inputs, on which the stage before waits, and gradients of
its weights, on which no stage waits (Qi et al., "Zero Bubble Pipeline Parallelism", 2023).
"""

import itertools
import re
from collections import Counter
from dataclasses import dataclass
from enum import Enum

from meshwright.errors import ScheduleError


class TaskKind(Enum):
    """What a task computes; the value is its letter in printed schedules."""

    FORWARD = "F"
    BACKWARD = "B"
    """The whole backward pass: gradients of inputs and of weights."""
    INPUT_GRADIENT = "I"
    WEIGHT_GRADIENT = "W"

    # Of its name, as `Enum` has it, takes a third of the time of a simulation.
    __hash__ = object.__hash__


_TASK = re.compile(r"([FBIW])(\d+)\.(\d+)")


@dataclass(frozen=True, slots=True)
class Task:
    """One pass of a stage over a microbatch; both count from zero.

    >>> str(Task(TaskKind.FORWARD, stage=2, microbatch=0))
    'F2.0'
    """

    kind: TaskKind
    stage: int
    microbatch: int

    def __post_init__(self) -> None:
        if self.stage < 0 or self.microbatch < 0:
            raise ScheduleError(
                f"a task of stage {self.stage} and microbatch {self.microbatch};"
                " both count from zero"
            )

    def __str__(self) -> str:
        return f"{self.kind.value}{self.stage}.{self.microbatch}"

    @staticmethod
    def parse(text: str) -> "Task":
        """The task that prints as `text`."""
        match = _TASK.fullmatch(text)
        if match is None:
            raise ScheduleError(
                f"{text!r} is no task; wanted F, B, I or W, a stage, a point and a"
                " microbatch, as in F2.0"
            )
        kind, stage, microbatch = match.groups()
        return Task(TaskKind(kind), int(stage), int(microbatch))


@dataclass(frozen=True, slots=True)
class Schedule:
    r"""The tasks of each submesh, in the order in which it runs them.

    orders: per submesh, its tasks.
    placement: per stage, the number of its submesh. Several stages may share a submesh
        (interleaved schedules), and each submesh has a stage.

    A schedule that exists has, for each stage and microbatch, a forward task and a
    backward task (or an input-gradient and a weight-gradient task) on the stage's submesh.
    `verify` says whether the order can run.

    >>> print(Schedule.parse("F0.0 F0.1 B0.0 B0.1\nF1.0 B1.0 F1.1 B1.1"))
    F0.0 F0.1 B0.0 B0.1
    F1.0 B1.0 F1.1 B1.1
    """

    orders: tuple[tuple[Task, ...], ...]
    placement: tuple[int, ...]
    num_microbatches: int

    def __post_init__(self) -> None:
        if self.num_microbatches < 1:
            raise ScheduleError(
                f"{self.num_microbatches} microbatches; a schedule has at least one"
            )
        if set(self.placement) != set(range(len(self.orders))) or not self.orders:
            raise ScheduleError(
                f"stages on submeshes {self.placement}, and {len(self.orders)} orders of"
                " tasks; wanted an order for each submesh, and a stage on each"
            )
        counts = Counter(itertools.chain(*self.orders))
        for submesh, order in enumerate(self.orders):
            for task in order:
                self._check_task(task, submesh, counts[task])
        pairs = itertools.product(range(self.num_stages), range(self.num_microbatches))
        for stage, microbatch in pairs:
            _check_passes(counts, stage, microbatch)

    def _check_task(self, task: Task, submesh: int, count: int) -> None:
        """Refuse a task that is repeated, out of range, or on the wrong submesh."""
        if task.stage >= self.num_stages or task.microbatch >= self.num_microbatches:
            raise ScheduleError(
                f"task {task} of submesh {submesh}, but there are {self.num_stages}"
                f" stages and {self.num_microbatches} microbatches"
            )
        if self.placement[task.stage] != submesh:
            raise ScheduleError(
                f"task {task} runs on submesh {submesh}; stage {task.stage} is placed"
                f" on submesh {self.placement[task.stage]}"
            )
        if count > 1:
            raise ScheduleError(f"task {task} runs {count} times; wanted once")

    @property
    def num_stages(self) -> int:
        """Number of stages."""
        return len(self.placement)

    @property
    def num_submeshes(self) -> int:
        """Number of submeshes."""
        return len(self.orders)

    def __str__(self) -> str:
        return "\n".join(" ".join(map(str, order)) for order in self.orders)

    @staticmethod
    def parse(text: str) -> "Schedule":
        """The schedule that prints as `text`: one line of tasks per submesh."""
        lines = [line.split() for line in text.strip().splitlines()]
        orders = tuple(tuple(map(Task.parse, words)) for words in lines)
        placed = {
            task.stage: submesh
            for submesh, order in enumerate(orders)
            for task in order
        }
        if sorted(placed) != list(range(len(placed))):
            raise ScheduleError(
                f"tasks of stages {sorted(placed)}; wanted stages from 0, none left out"
            )
        return Schedule(
            orders,
            tuple(placed[stage] for stage in range(len(placed))),
            1
            + max((task.microbatch for order in orders for task in order), default=-1),
        )


def _check_passes(counts: Counter[Task], stage: int, microbatch: int) -> None:
    """Refuse a stage that lacks a pass over a microbatch, or has one twice."""
    kinds = "".join(
        kind.value for kind in TaskKind if counts[Task(kind, stage, microbatch)]
    )
    if kinds not in ("FB", "FIW"):
        raise ScheduleError(
            f"stage {stage} has the tasks {kinds or 'none'} for microbatch {microbatch};"
            " wanted a forward task (F) and a backward one (B), or its two halves (I, W)"
        )
