"""Search for schedules, against all schedules of tiny cases and the published ones."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.errors import ScheduleError
from meshwright.features.pipeline.planning.schedule_search import (
    known_states,
    search_schedule,
)
from meshwright.features.pipeline.schedules.generators import SCHEDULES, warmed_up
from meshwright.features.pipeline.schedules.schedule import Schedule, Task, TaskKind
from meshwright.features.pipeline.schedules.simulate import (
    StageBytes,
    StageTimes,
    simulate,
)
from meshwright.search import Budget

BUDGET = Budget(evaluations=150)


def makespan_of(times, hop=0.0, sizes=(), limit=math.inf):
    return lambda schedule: simulate(schedule, times, hop, sizes, limit).makespan_s


def test_published_schedules_are_states_of_the_search():
    states = known_states(3, 7)
    names = ("1f1b", "eager-1f1b", "gpipe", "zb-h1", "zb-h2")
    for name, (ahead, alive) in zip(names, states, strict=True):
        assert warmed_up(ahead, 7, alive) == SCHEDULES[name](3, 7)


@settings(max_examples=10)
@given(
    st.lists(st.integers(1, 5), min_size=2, max_size=4),
    st.integers(1, 6),
    st.integers(0, 3),
    st.integers(4, 9),
)
def test_a_found_schedule_is_never_slower_than_published_ones(
    forwards, num_microbatches, hop, limit
):
    times = [StageTimes(f, f, 0.5 * f) for f in forwards]
    num, sizes = len(times), [StageBytes(0, 1, 1)] * len(times)
    seconds = makespan_of(times, hop, sizes, limit)
    found = seconds(search_schedule(num, num_microbatches, seconds, BUDGET))
    for name in ("1f1b", "eager-1f1b", "gpipe", "zb-h1", "zb-h2"):
        try:
            published = seconds(SCHEDULES[name](num, num_microbatches))
        except ScheduleError:
            continue
        assert found <= published + 1e-9


def all_orders(left, order=()):
    """All orders of a stage's tasks, with whole backward passes."""
    forwards, backwards, num = left
    if backwards == num:
        yield order
    if forwards < num:
        yield from all_orders((forwards + 1, backwards, num), (*order, "F"))
    if backwards < forwards:
        yield from all_orders((forwards, backwards + 1, num), (*order, "B"))


def as_tasks(letters, stage):
    counts = {"F": 0, "B": 0}
    for letter in letters:
        yield Task(TaskKind(letter), stage, counts[letter])
        counts[letter] += 1


@pytest.mark.parametrize(("first", "second", "hop"), [(1, 3, 0), (3, 1, 2), (2, 2, 5)])
def test_two_stages_run_as_fast_as_in_the_best_of_all_orders(first, second, hop):
    times = [StageTimes(first, first, 0), StageTimes(second, second, 0)]
    seconds = makespan_of(times, hop)
    orders = [*all_orders((0, 0, 3))]
    best = math.inf
    for one in orders:
        for two in orders:
            both = tuple(as_tasks(one, 0)), tuple(as_tasks(two, 1))
            try:
                best = min(best, seconds(Schedule(both, (0, 1), 3)))
            except ScheduleError:
                continue
    assert seconds(search_schedule(2, 3, seconds, BUDGET)) == best


def test_too_little_memory_for_1f1b_is_refused():
    times, sizes = [StageTimes(1, 1, 1)] * 2, [StageBytes(0, 2**30)] * 2
    seconds = makespan_of(times, 0, sizes, 1.5 * 2**30)
    with pytest.raises(ScheduleError, match=r"stage 0 needs 2.00 GiB"):
        search_schedule(2, 4, seconds, BUDGET)
