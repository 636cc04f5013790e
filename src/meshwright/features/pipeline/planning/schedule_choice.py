"""The choice of a schedule for given stages: a published one or one found by search."""

from __future__ import annotations

from collections.abc import Callable

from meshwright.errors import ScheduleError
from meshwright.features.pipeline.planning.pipeline_stage import (
    PipelineStage,
    run_stages,
    step_s,
)
from meshwright.features.pipeline.planning.schedule_search import search_schedule
from meshwright.features.pipeline.schedules.generators import (
    SCHEDULES,
    STAGES_PER_SUBMESH,
)
from meshwright.features.pipeline.schedules.schedule import Schedule
from meshwright.search import Budget

_WORTHWHILE = 0.001
"""Share of the step time that a searched schedule has to save over published ones."""

_SIMULATED = 40_000
"""Number of tasks that a search for a schedule simulates: about half a second of work.

A task is one pass of one microbatch through one stage.
"""


type Tried = tuple[tuple[str, float | str], ...]
"""The name of each schedule, with its seconds of a step or why it does not fit."""


def choose_schedule(
    stages: tuple[PipelineStage, ...],
    num_microbatches: int,
    limit_bytes: float,
    only: str = "",
    with_search: bool = True,
) -> tuple[str, Schedule, Tried]:
    """The fastest schedule of these stages within a limit of each device's memory.

    The result is the schedule's name, the schedule, and what was tried.
    only: name of the only schedule to try; "" for all, and a searched one.
    with_search: whether to search, too.
    Raises `ScheduleError` if none fits into memory.
    """
    num_stages = len(stages)

    def step_seconds(schedule: Schedule) -> float:
        return step_s(stages, run_stages(stages, schedule, limit_bytes))

    if only:
        schedule = SCHEDULES[only](num_stages, num_microbatches)
        return only, schedule, ((only, step_seconds(schedule)),)
    best, tried = _fastest_published(num_stages, num_microbatches, step_seconds)
    if with_search:
        most = num_evaluations(num_stages * num_microbatches)
        # Few stages and microbatches have few schedules, which come again and again.
        budget = Budget(evaluations=most, trials=4 * most)
        searched = search_schedule(num_stages, num_microbatches, step_seconds, budget)
        seconds = step_seconds(searched)
        tried.append(("searched", seconds))
        if best is None or seconds < (1 - _WORTHWHILE) * best[0]:
            best = seconds, "searched", searched
    if best is None:  # 1F1B needs least memory: its error says where it does not fit
        schedule = SCHEDULES["1f1b"](num_stages, num_microbatches)
        best = step_seconds(schedule), "1f1b", schedule
    _, name, schedule = best
    return name, schedule, tuple(tried)


def _fastest_published(
    num_stages: int, num_microbatches: int, seconds_fn: Callable[[Schedule], float]
) -> tuple[tuple[float, str, Schedule] | None, list[tuple[str, float | str]]]:
    """The fastest published schedule of stages with a submesh each, and all tried ones.

    The schedule comes with its seconds and its name; `None` if none fits into memory.
    seconds_fn: seconds of a step; raises `ScheduleError` if a schedule does not fit.
    """
    tried: list[tuple[str, float | str]] = []
    best: tuple[float, str, Schedule] | None = None
    for name, generator in SCHEDULES.items():
        if name in STAGES_PER_SUBMESH:
            continue
        schedule = generator(num_stages, num_microbatches)
        try:
            seconds = seconds_fn(schedule)
        except ScheduleError as error:
            tried.append((name, str(error)))
            continue
        tried.append((name, seconds))
        if best is None or seconds < best[0]:
            best = seconds, name, schedule
    return best, tried


def num_evaluations(num_tasks: int) -> int:
    """Number of schedules that a search simulates, if each has `num_tasks` tasks."""
    return max(8, _SIMULATED // num_tasks)
