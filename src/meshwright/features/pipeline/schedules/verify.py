"""The verdict on a schedule: whether its order can run, and how much it keeps alive."""

from collections.abc import Iterator

from meshwright.errors import ScheduleError
from meshwright.features.pipeline.schedules.schedule import Schedule, Task, TaskKind


def needed(task: Task, schedule: Schedule) -> Iterator[frozenset[Task]]:
    """Sets of tasks; of each set, one has to end before `task` can start.

    A set has two tasks where the backward pass may be whole or split; a schedule has only
    one of them.
    """
    stage, microbatch = task.stage, task.microbatch
    if task.kind is TaskKind.FORWARD:
        if stage:
            yield frozenset({Task(TaskKind.FORWARD, stage - 1, microbatch)})
    elif task.kind is TaskKind.WEIGHT_GRADIENT:
        yield frozenset({Task(TaskKind.INPUT_GRADIENT, stage, microbatch)})
    else:
        yield frozenset({Task(TaskKind.FORWARD, stage, microbatch)})
        if stage + 1 < schedule.num_stages:
            kinds = (TaskKind.BACKWARD, TaskKind.INPUT_GRADIENT)
            yield frozenset(Task(kind, stage + 1, microbatch) for kind in kinds)


def run_order(schedule: Schedule) -> tuple[Task, ...]:
    """All tasks in an order that one worker could run; refuses a deadlock.

    The order keeps that of each submesh, and every task comes after those that it needs.
    """
    done: dict[Task, None] = {}
    positions = [0] * schedule.num_submeshes
    total = sum(map(len, schedule.orders))
    while len(done) < total:
        before = len(done)
        for submesh, order in enumerate(schedule.orders):
            while positions[submesh] < len(order):
                task = order[positions[submesh]]
                if any(
                    done.keys().isdisjoint(group) for group in needed(task, schedule)
                ):
                    break
                done[task] = None
                positions[submesh] += 1
        if len(done) == before:
            raise ScheduleError(_deadlock(schedule, positions, done))
    return tuple(done)


def _deadlock(schedule: Schedule, positions: list[int], done: dict[Task, None]) -> str:
    """The message about a deadlock: each submesh's next task, and what it waits for."""
    waits: list[str] = []
    for submesh, order in enumerate(schedule.orders):
        if positions[submesh] < len(order):
            task = order[positions[submesh]]
            missing = [
                " or ".join(sorted(map(str, group)))
                for group in needed(task, schedule)
                if done.keys().isdisjoint(group)
            ]
            waits.append(
                f"submesh {submesh} waits with stage {task.stage}, microbatch"
                f" {task.microbatch} ({task}) for {' and '.join(missing)}"
            )
    return f"the schedule deadlocks after {len(done)} tasks: {'; '.join(waits)}"


def verify(schedule: Schedule) -> None:
    """Refuse a schedule that deadlocks; the error names stage and microbatch."""
    run_order(schedule)


def peak_activations(schedule: Schedule) -> tuple[int, ...]:
    """Per submesh, the most pairs of a stage and a microbatch that are alive at once.

    A microbatch is alive from its forward task to its backward task, or to its
    weight-gradient task if the backward pass is split.
    """
    peaks: list[int] = []
    for order in schedule.orders:
        alive = peak = 0
        for task in order:
            if task.kind is TaskKind.FORWARD:
                alive += 1
            elif task.kind is not TaskKind.INPUT_GRADIENT:
                alive -= 1
            peak = max(peak, alive)
        peaks.append(peak)
    return tuple(peaks)
