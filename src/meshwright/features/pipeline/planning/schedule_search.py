"""A search for the schedule of unequal stages, under a limit of memory.

The authors of zero-bubble pipelines solve an integer program for this (Qi et al., 2023,
section 3). Here a search state is a few numbers per stage: forward passes before the
first backward pass, and microbatches kept alive if the backward pass is split (into
gradients of inputs and of weights). 1F1B, GPipe and the zero-bubble schedules are
states, and the search starts from the best of them. So it never returns a slower
schedule than these.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from meshwright.errors import ScheduleError
from meshwright.features.pipeline.schedules.generators import warmed_up
from meshwright.features.pipeline.schedules.schedule import Schedule
from meshwright.search import Annealing, Budget, search

type WarmUps = tuple[tuple[int, ...], tuple[int, ...] | None]
"""A schedule as two lists of numbers, one number per stage.

They are the forward passes before the first backward pass; and the microbatches alive,
or `None` if backward passes are not split.
"""

type StepSeconds = Callable[[Schedule], float]
"""A function from a schedule to the seconds of a step.

It raises `ScheduleError` if the schedule exceeds memory.
"""


def known_states(num_stages: int, num_microbatches: int) -> tuple[WarmUps, ...]:
    """Search states of five published schedules: 1F1B, eager 1F1B, GPipe, ZB-H1, ZB-H2."""
    later = tuple(range(num_stages - 1, -1, -1))
    once = tuple(s + 1 for s in later)
    twice = tuple(2 * s + 1 for s in later)
    return (
        (once, None),
        (twice, None),
        ((num_microbatches,) * num_stages, None),
        (once, (num_stages,) * num_stages),
        (twice, (2 * num_stages - 1,) * num_stages),
    )


@dataclass(frozen=True)
class ScheduleProblem:
    """The search problem of schedules: an action changes one number of a state by one.

    first: state at which the search starts.
    """

    first: WarmUps
    num_microbatches: int
    step_seconds: StepSeconds

    def start(self) -> WarmUps:
        """The state at which the search starts."""
        return self.first

    def actions(self, state: WarmUps) -> Sequence[tuple[int, int, int]]:
        """Changes of a state by one: which list changes, the stage, and +1 or -1."""
        return tuple(
            (which, stage, change)
            for which, numbers in enumerate(state)
            for stage, number in enumerate(numbers or ())
            for change in (1, -1)
            if 1 <= number + change <= self.num_microbatches
        )

    def apply(self, state: WarmUps, action: tuple[int, int, int]) -> WarmUps:
        """The state after one of its numbers was changed."""
        which, stage, change = action
        changed = [list(numbers or ()) for numbers in state]
        changed[which][stage] += change
        ahead, alive = map(tuple, changed)
        return ahead, alive or None

    def cost(self, state: WarmUps) -> float:
        """Seconds of a step; infinite if the schedule deadlocks or exceeds memory."""
        try:
            return self.step_seconds(self.schedule(state))
        except ScheduleError:
            return float("inf")

    def key(self, state: WarmUps) -> WarmUps:
        """The state itself, by which the search recognizes equal states."""
        return state

    def schedule(self, state: WarmUps) -> Schedule:
        """The schedule that a state stands for."""
        ahead, alive = state
        return warmed_up(ahead, self.num_microbatches, alive)


def search_schedule(
    num_stages: int,
    num_microbatches: int,
    step_seconds: StepSeconds,
    budget: Budget,
) -> Schedule:
    """The fastest schedule that a search finds; never slower than `known_states`.

    Raises `ScheduleError` if not even one of these published schedules fits.
    """
    problems = [
        ScheduleProblem(state, num_microbatches, step_seconds)
        for state in known_states(num_stages, num_microbatches)
    ]
    best = min(problems, key=lambda problem: problem.cost(problem.first))
    if best.cost(best.first) == float("inf"):
        step_seconds(problems[0].schedule(problems[0].first))  # raises, and says why
    found = search(best, Annealing(seed=0), budget)
    return best.schedule(found.state)
