"""DualPipeV: two stages on each submesh in the shape of a V, and passes of both in turn.

DeepSeek-AI, "DeepSeek-V3 Technical Report", 2024, section 3.2.1, and its program DualPipe
(2025). It is DualPipe cut in half, so that weights are held once.
"""

from collections import Counter, deque
from collections.abc import Iterator

from meshwright.errors import ScheduleError
from meshwright.features.pipeline.schedules.schedule import Schedule, Task, TaskKind


def dual_pipe_v(num_submeshes: int, num_microbatches: int) -> Schedule:
    """DualPipeV: stages s and 2 * num_submeshes - 1 - s run on submesh s.

    So the last submesh hands a microbatch from its first stage to its second without a
    transfer, and a forward pass of one stage alternates with a backward pass of the
    other. It wants two microbatches for each submesh at least.

    >>> print(dual_pipe_v(2, 4))
    F0.0 F0.1 F0.2 F3.0 I3.0 W3.0 F3.1 F0.3 B3.1 F3.2 B0.0 B3.2 F3.3 B0.1 B3.3 I0.2 \
W0.2 I0.3 W0.3
    F1.0 F2.0 F1.1 F2.1 F1.2 B2.0 F2.2 B1.0 F1.3 B2.1 F2.3 B1.1 B2.2 B1.2 I2.3 I1.3 \
W2.3 W1.3
    """
    if num_submeshes < 1 or num_microbatches < 2 * num_submeshes:
        raise ScheduleError(
            f"{num_microbatches} microbatches on {num_submeshes} submeshes; DualPipeV"
            " wants a submesh, and two microbatches for each submesh at least"
        )
    orders = (
        _tasks(submesh, num_submeshes, num_microbatches)
        for submesh in range(num_submeshes)
    )
    there = tuple(range(num_submeshes))
    return Schedule(tuple(map(tuple, orders)), there + there[::-1], num_microbatches)


def _tasks(submesh: int, num_submeshes: int, num_microbatches: int) -> Iterator[Task]:
    """The tasks of a submesh; microbatches follow one another in each pass."""
    stages = submesh, 2 * num_submeshes - 1 - submesh
    done: Counter[tuple[bool, int]] = Counter()
    waiting: deque[Task] = deque()
    for word in _words(submesh, num_submeshes, num_microbatches):
        if word == "W":
            before = waiting.popleft()
            yield Task(TaskKind.WEIGHT_GRADIENT, before.stage, before.microbatch)
            continue
        kind, half = TaskKind(word[0]), int(word[1])
        passes = kind is TaskKind.FORWARD, half
        task = Task(kind, stages[half], done[passes])
        done[passes] += 1
        if kind is TaskKind.INPUT_GRADIENT:
            waiting.append(task)
        yield task


def _words(submesh: int, num_submeshes: int, num_microbatches: int) -> list[str]:
    """The passes of a submesh in order, by the eight steps of the published program.

    A word is the letter of a task's kind and 0 or 1 for the first or second stage; W
    computes the gradients of weights that have waited longest.
    """
    later = num_submeshes - 1 - submesh
    steady = num_microbatches - num_submeshes - later
    last = [("B" if i <= submesh else "I") for i in range(2 * submesh + 2)]
    return [
        *["F0"] * (2 * later),
        *["F0", "F1"] * (submesh + 1),
        *["I1", "W", "F1"] * later,
        *["F0", "B1", "F1", "B0"] * steady,
        *["B1", "F1", "B0"] * later,
        *(f"{kind}{1 - i % 2}" for i, kind in enumerate(last)),
        *["W", "I0"] * later,
        *["W"] * (submesh + 1),
    ]
