"""Schedules of the literature, by the numbers of stages and of microbatches.

GPipe: Huang et al., NeurIPS 2019. 1F1B: Narayanan et al., "PipeDream", SOSP 2019, with a
flush at the end of the step ("Memory-Efficient Pipeline-Parallel DNN Training", ICML
2021). Eager 1F1B: Zhuang et al., "On Optimizing the Communication of Model Parallelism",
MLSys 2023. Interleaved: Narayanan et al., "Efficient Large-Scale Language Model Training
on GPU Clusters", SC 2021. Zero-bubble: Qi et al., "Zero Bubble Pipeline Parallelism", 2023.
DualPipeV is in `dual_pipe.py`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from meshwright.errors import PlanError, ScheduleError, did_you_mean
from meshwright.features.pipeline.schedules.dual_pipe import dual_pipe_v
from meshwright.features.pipeline.schedules.schedule import Schedule, Task, TaskKind

_F, _B = TaskKind.FORWARD, TaskKind.BACKWARD
_I, _W = TaskKind.INPUT_GRADIENT, TaskKind.WEIGHT_GRADIENT


def gpipe(num_stages: int, num_microbatches: int) -> Schedule:
    """All forward passes, and then all backward passes.

    >>> print(gpipe(2, 2))
    F0.0 F0.1 B0.0 B0.1
    F1.0 F1.1 B1.0 B1.1
    """
    return warmed_up((num_microbatches,) * num_stages, num_microbatches)


def one_f_one_b(num_stages: int, num_microbatches: int) -> Schedule:
    """Forward and backward passes in turn, after one forward pass per later stage.

    >>> print(one_f_one_b(2, 3))
    F0.0 F0.1 B0.0 F0.2 B0.1 B0.2
    F1.0 B1.0 F1.1 B1.1 F1.2 B1.2
    """
    return interleaved(num_stages, 1, num_microbatches)


def eager_one_f_one_b(num_stages: int, num_microbatches: int) -> Schedule:
    """1F1B with two forward passes per later stage first, so that transfers are hidden.

    Up to 2 * num_stages - 1 microbatches are alive on a submesh.

    >>> print(eager_one_f_one_b(2, 4))
    F0.0 F0.1 F0.2 B0.0 F0.3 B0.1 B0.2 B0.3
    F1.0 B1.0 F1.1 B1.1 F1.2 B1.2 F1.3 B1.3
    """
    return warmed_up(tuple(range(2 * num_stages - 1, 0, -2)), num_microbatches)


def interleaved(num_submeshes: int, chunks: int, num_microbatches: int) -> Schedule:
    """1F1B with several stages ("chunks" of the model) per submesh.

    Stage s runs on submesh s modulo the number of submeshes. Microbatches take turns in
    groups of one per submesh, so that with several chunks the number of submeshes has to
    divide that of microbatches.

    >>> print(interleaved(2, 2, 2))
    F0.0 F0.1 F2.0 F2.1 B2.0 B2.1 B0.0 B0.1
    F1.0 F1.1 F3.0 B3.0 F3.1 B3.1 B1.0 B1.1
    """
    _check_counts(num_submeshes, num_microbatches)
    if chunks < 1:
        raise ScheduleError(f"{chunks} stages per submesh; wanted at least one")
    if chunks > 1 and num_microbatches % num_submeshes:
        raise ScheduleError(
            f"{num_microbatches} microbatches on {num_submeshes} submeshes; an interleaved"
            f" schedule wants a multiple of {num_submeshes}"
        )
    orders: list[tuple[Task, ...]] = []
    for submesh in range(num_submeshes):
        later = num_submeshes - 1 - submesh
        ahead = later if chunks == 1 else 2 * later + (chunks - 1) * num_submeshes
        forward, backward = (
            [
                Task(kind, chunk * num_submeshes + submesh, microbatch)
                for chunk, microbatch in _pass_order(
                    num_submeshes, chunks, num_microbatches, kind
                )
            ]
            for kind in (_F, _B)
        )
        orders.append(tuple(_alternated(forward, backward, ahead)))
    placement = tuple(range(num_submeshes)) * chunks
    return Schedule(tuple(orders), placement, num_microbatches)


def _pass_order(
    num_submeshes: int, chunks: int, num_microbatches: int, kind: TaskKind
) -> Iterator[tuple[int, int]]:
    """Chunk and microbatch of each pass of a submesh, in order."""
    size = num_submeshes if chunks > 1 else num_microbatches
    order = range(chunks) if kind is _F else reversed(range(chunks))
    in_order = tuple(order)
    for first in range(0, num_microbatches, size):
        for chunk in in_order:
            for microbatch in range(first, first + size):
                yield chunk, microbatch


def _alternated(
    forward: list[Task], backward: list[Task], ahead: int
) -> Iterator[Task]:
    """Forward and backward tasks in turn, after `ahead` forward tasks."""
    ahead = min(ahead, len(forward))
    yield from forward[:ahead]
    for index, task in enumerate(backward):
        yield from forward[ahead + index : ahead + index + 1]
        yield task


def zero_bubble(num_stages: int, num_microbatches: int) -> Schedule:
    """ZB-H1: 1F1B with weight gradients in the bubbles, and no more microbatches alive.

    >>> print(zero_bubble(2, 3))
    F0.0 F0.1 I0.0 W0.0 F0.2 I0.1 W0.1 I0.2 W0.2
    F1.0 I1.0 F1.1 I1.1 W1.0 F1.2 I1.2 W1.1 W1.2
    """
    ahead = tuple(range(num_stages, 0, -1))
    return warmed_up(ahead, num_microbatches, (num_stages,) * num_stages)


def zero_bubble_2(num_stages: int, num_microbatches: int) -> Schedule:
    """ZB-H2: ZB-H1 with more forward passes first, and no bubble if all tasks take as long.

    Up to 2 * num_stages - 1 microbatches are alive on a submesh.
    """
    ahead = tuple(range(2 * num_stages - 1, 0, -2))
    return warmed_up(ahead, num_microbatches, (2 * num_stages - 1,) * num_stages)


def warmed_up(
    ahead: Sequence[int], num_microbatches: int, alive: Sequence[int] | None = None
) -> Schedule:
    """Forward and backward passes in turn, after some forward passes on each stage.

    ahead: per stage, its forward passes before the first backward pass.
    alive: per stage, the most microbatches whose gradients of weights are still to come.
        If given, backward passes are split, and gradients of weights are computed when
        this limit is reached, or no forward pass is left.
    1F1B, GPipe and the zero-bubble schedules are among these schedules.
    """
    _check_counts(len(ahead), num_microbatches)
    if min(ahead) < 1 or (alive is not None and len(alive) != len(ahead)):
        raise ScheduleError(
            f"{tuple(ahead)} forward passes first, and {alive} microbatches alive; wanted"
            " a number above 0 for each stage"
        )
    orders: list[tuple[Task, ...]] = []
    for stage, first in enumerate(ahead):
        if alive is None:
            forward, backward = (
                [Task(kind, stage, m) for m in range(num_microbatches)]
                for kind in (_F, _B)
            )
            order = _alternated(forward, backward, first - 1)
        else:
            order = _split_order(stage, first, alive[stage], num_microbatches)
        orders.append(tuple(order))
    return Schedule(tuple(orders), tuple(range(len(orders))), num_microbatches)


def _split_order(
    stage: int, ahead: int, alive: int, num_microbatches: int
) -> list[Task]:
    """The tasks of a stage with split backward passes; see `warmed_up`."""
    forwards = min(ahead, num_microbatches)
    order = [Task(_F, stage, m) for m in range(forwards)]
    inputs = weights = 0
    while weights < num_microbatches:
        if inputs < num_microbatches:
            order.append(Task(_I, stage, inputs))
            inputs += 1
        if forwards == num_microbatches or forwards - weights >= alive:
            order.append(Task(_W, stage, weights))
            weights += 1
        if forwards < num_microbatches:
            order.append(Task(_F, stage, forwards))
            forwards += 1
    return order


def _check_counts(num_stages: int, num_microbatches: int) -> None:
    if num_stages < 1 or num_microbatches < 1:
        raise ScheduleError(
            f"{num_stages} stages and {num_microbatches} microbatches; wanted at least one"
            " of each"
        )


def _in_pairs(
    name: str, generator: Callable[[int, int], Schedule]
) -> Callable[[int, int], Schedule]:
    """A schedule with two stages per submesh as a function of the number of stages.

    generator: function of the numbers of submeshes and of microbatches.
    """

    def schedule(num_stages: int, num_microbatches: int) -> Schedule:
        if num_stages % 2:
            raise ScheduleError(
                f"{num_stages} stages; the schedule {name!r} has two per submesh, and"
                " wants an even number"
            )
        return generator(num_stages // 2, num_microbatches)

    return schedule


STAGES_PER_SUBMESH: Mapping[str, int] = {"interleaved": 2, "dualpipev": 2}
"""By name of a schedule with several stages on each submesh: how many there are."""

SCHEDULES: Mapping[str, Callable[[int, int], Schedule]] = {
    "gpipe": gpipe,
    "1f1b": one_f_one_b,
    "eager-1f1b": eager_one_f_one_b,
    "interleaved": _in_pairs("interleaved", lambda p, m: interleaved(p, 2, m)),
    "zb-h1": zero_bubble,
    "zb-h2": zero_bubble_2,
    "dualpipev": _in_pairs("dualpipev", dual_pipe_v),
}
"""By name: the schedule of a number of stages and a number of microbatches."""


def require_schedule(name: str) -> None:
    """Refuse a name that no schedule has, with the names that there are."""
    if name not in SCHEDULES:
        raise PlanError(
            f"no schedule is named {name!r}; there are {', '.join(SCHEDULES)}"
            f"{did_you_mean(name, SCHEDULES)}"
        )
