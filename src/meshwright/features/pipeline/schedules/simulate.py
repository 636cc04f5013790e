"""A schedule on an event clock: start and end of each task, bubbles, and peak memory.

A submesh runs its tasks in their order, each as soon as its inputs have arrived. A result
for another submesh is sent when its task ends. The transfers from one stage to the next
one go one after another, beside the computation of both.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from meshwright.errors import ScheduleError
from meshwright.features.pipeline.schedules.schedule import Schedule, Task, TaskKind
from meshwright.features.pipeline.schedules.verify import needed, run_order
from meshwright.machine.memory_size import show_bytes


@dataclass(frozen=True, slots=True)
class StageTimes:
    """Seconds of a stage's tasks for one microbatch; `BACKWARD` takes both gradients'."""

    forward_s: float
    input_gradient_s: float
    weight_gradient_s: float

    def __post_init__(self) -> None:
        if not min(self.forward_s, self.input_gradient_s, self.weight_gradient_s) >= 0:
            raise ScheduleError(f"times of a stage are at least 0 s; got {self}")

    @property
    def total_s(self) -> float:
        """Seconds of all tasks of one microbatch."""
        return self.forward_s + self.input_gradient_s + self.weight_gradient_s

    def of(self, kind: TaskKind) -> float:
        """Seconds of a task of this kind."""
        match kind:
            case TaskKind.FORWARD:
                return self.forward_s
            case TaskKind.INPUT_GRADIENT:
                return self.input_gradient_s
            case TaskKind.WEIGHT_GRADIENT:
                return self.weight_gradient_s
            case TaskKind.BACKWARD:
                return self.input_gradient_s + self.weight_gradient_s


@dataclass(frozen=True, slots=True)
class StageBytes:
    """Bytes of a stage on each of its devices.

    state: weights, optimizer state and gradients.
    activations: saved for the backward pass, per microbatch.
    for_weights: the part of them that a weight-gradient task still reads after the
        input-gradient task, with the gradients that it reads.
    working: what a task needs while it runs. Stages of one submesh share it, since their
        tasks run one after another.
    """

    state: float
    activations: float
    for_weights: float = 0.0
    working: float = 0.0

    def __post_init__(self) -> None:
        least = min(self.state, self.activations, self.for_weights, self.working)
        if not least >= 0:
            raise ScheduleError(f"bytes of a stage are at least 0; got {self}")


@dataclass(frozen=True, slots=True)
class TaskSpan:
    """A task with its start and end on the clock."""

    task: Task
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Simulation:
    """A simulated schedule.

    spans: per submesh, its tasks in order.
    makespan_s: end of the last task; the first one starts at 0.
    peak_bytes: per submesh, the most bytes on one of its devices; empty if the bytes of
        stages were not given.
    """

    spans: tuple[tuple[TaskSpan, ...], ...]
    makespan_s: float
    peak_bytes: tuple[float, ...] = ()

    @property
    def span_s(self) -> float:
        """The longest time from the first start to the last end on one submesh.

        It is the time of a step if each submesh begins the next step as soon as it has
        ended this one, without a barrier (Qi et al., 2023, section 4).
        """
        return max(own[-1].end_s - own[0].start_s for own in self.spans)

    @property
    def bubble_fraction(self) -> float:
        """The share of `span_s` in which submeshes are idle, on average."""
        busy = sum(span.end_s - span.start_s for own in self.spans for span in own)
        whole = self.span_s * len(self.spans)
        return 1 - busy / whole if whole else 0.0


def simulate(
    schedule: Schedule,
    times: Sequence[StageTimes],
    transfer_s: Sequence[float] | float = 0.0,
    stage_bytes: Sequence[StageBytes] = (),
    limit_bytes: float = float("inf"),
) -> Simulation:
    """The schedule on an event clock.

    times, stage_bytes: per stage. transfer_s: seconds from each stage to the next one,
    and back; nothing is sent between stages of one submesh.
    Raises `ScheduleError` if the schedule deadlocks, or if a device needs more than
    `limit_bytes`; the error names stage and microbatch.
    """
    num_stages = schedule.num_stages
    if len(times) != num_stages:
        raise ScheduleError(f"times of {len(times)} stages; wanted {num_stages}")
    hops = (
        (float(transfer_s),) * (num_stages - 1)
        if isinstance(transfer_s, int | float)
        else tuple(transfer_s)
    )
    if len(hops) != num_stages - 1 or min(hops, default=0.0) < 0:
        raise ScheduleError(
            f"seconds of transfers are {hops}; wanted {num_stages - 1}, one between each"
            " stage and the next, none below 0"
        )
    order = run_order(schedule)
    peaks = peak_bytes(schedule, stage_bytes, limit_bytes) if stage_bytes else ()
    return _Clock(schedule, times, hops).run(order, peaks)


class _Clock:
    """The times at which submeshes and links become free, and results arrive."""

    def __init__(
        self, schedule: Schedule, times: Sequence[StageTimes], hops: Sequence[float]
    ) -> None:
        self.schedule, self.times, self.hops = schedule, times, hops
        self.free_s = [0.0] * schedule.num_submeshes
        self.link_free_s: dict[tuple[int, int], float] = {}
        self.end_s: dict[Task, float] = {}
        self.arrived_s: dict[Task, float] = {}

    def run(self, order: Sequence[Task], peaks: tuple[float, ...]) -> Simulation:
        """The simulation of tasks in an order that respects all dependencies."""
        spans: list[list[TaskSpan]] = [[] for _ in self.free_s]
        for task in order:
            submesh = self.schedule.placement[task.stage]
            start = max(self.free_s[submesh], self._ready_s(task))
            end = start + self.times[task.stage].of(task.kind)
            self.free_s[submesh] = self.end_s[task] = end
            self._send(task, end)
            spans[submesh].append(TaskSpan(task, start, end))
        return Simulation(tuple(map(tuple, spans)), max(self.free_s), peaks)

    def _ready_s(self, task: Task) -> float:
        """The time at which all inputs of a task have arrived."""
        ready = 0.0
        for group in needed(task, self.schedule):
            for each in group:
                if each in self.end_s:
                    known = self.end_s if each.stage == task.stage else self.arrived_s
                    ready = max(ready, known[each])
        return ready

    def _send(self, task: Task, end: float) -> None:
        """Send the result of a task to the stage that reads it."""
        step = 1 if task.kind is TaskKind.FORWARD else -1
        link = task.stage, task.stage + step
        if task.kind is TaskKind.WEIGHT_GRADIENT:
            return
        if not 0 <= link[1] < self.schedule.num_stages:
            return
        placement = self.schedule.placement
        if placement[link[0]] == placement[link[1]]:
            self.arrived_s[task] = end
            return
        begins = max(end, self.link_free_s.get(link, 0.0))
        arrives = begins + self.hops[min(link)]
        self.link_free_s[link] = self.arrived_s[task] = arrives


def peak_bytes(
    schedule: Schedule,
    stage_bytes: Sequence[StageBytes],
    limit_bytes: float = float("inf"),
) -> tuple[float, ...]:
    """Per submesh, the most bytes that one of its devices has to hold at once.

    Raises `ScheduleError` at the first task that needs more than `limit_bytes`.
    """
    if len(stage_bytes) != schedule.num_stages:
        raise ScheduleError(
            f"bytes of {len(stage_bytes)} stages; wanted {schedule.num_stages}"
        )
    peaks: list[float] = []
    for submesh, order in enumerate(schedule.orders):
        own = [s for s, d in enumerate(schedule.placement) if d == submesh]
        held = sum(stage_bytes[s].state for s in own)
        held += max((stage_bytes[s].working for s in own), default=0.0)
        peak = held
        for task in order:
            each = stage_bytes[task.stage]
            if task.kind is TaskKind.FORWARD:
                held += each.activations
            peak = max(peak, held)
            if peak > limit_bytes:
                raise ScheduleError(
                    f"stage {task.stage} needs {show_bytes(peak)} per device of submesh"
                    f" {submesh} at microbatch {task.microbatch} ({task}), and"
                    f" {show_bytes(limit_bytes)} are allowed; use more stages, more"
                    " devices, smaller microbatches, or a schedule that keeps fewer alive"
                )
            held -= released_bytes(task.kind, each)
        peaks.append(peak)
    return tuple(peaks)


def released_bytes(kind: TaskKind, each: StageBytes) -> float:
    """Bytes of activations that a stage can free when a task of this kind ends."""
    match kind:
        case TaskKind.FORWARD:
            return 0.0
        case TaskKind.BACKWARD:
            return each.activations
        case TaskKind.INPUT_GRADIENT:
            return each.activations - each.for_weights
        case TaskKind.WEIGHT_GRADIENT:
            return each.for_weights
