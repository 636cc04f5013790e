"""Schedules of the literature: their closed forms, and what the verifier refuses."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.errors import ScheduleError
from meshwright.features.pipeline.schedules.dual_pipe import dual_pipe_v
from meshwright.features.pipeline.schedules.generators import (
    SCHEDULES,
    STAGES_PER_SUBMESH,
    eager_one_f_one_b,
    gpipe,
    interleaved,
    one_f_one_b,
    zero_bubble,
    zero_bubble_2,
)
from meshwright.features.pipeline.schedules.schedule import Schedule, Task, TaskKind
from meshwright.features.pipeline.schedules.simulate import (
    StageBytes,
    StageTimes,
    peak_bytes,
    simulate,
)
from meshwright.features.pipeline.schedules.verify import peak_activations, verify

STAGES = st.integers(1, 8)
SECONDS = st.floats(0.1, 2.0)


def equal(num_stages, forward_s=1.0, input_s=1.0, weight_s=1.0):
    return [StageTimes(forward_s, input_s, weight_s)] * num_stages


def bubble_s(schedule, times):
    """Idle seconds of the submesh that takes longest."""
    work = schedule.num_microbatches * sum(t.total_s for t in times)
    return simulate(schedule, times).span_s - work / schedule.num_submeshes


@pytest.mark.parametrize("name", SCHEDULES)
@given(half=st.integers(1, 4), groups=st.integers(1, 4))
def test_every_schedule_runs_and_reads_back(name, half, groups):
    schedule = SCHEDULES[name](2 * half, 2 * half * groups)
    verify(schedule)
    assert Schedule.parse(str(schedule)) == schedule
    assert simulate(schedule, equal(2 * half)).makespan_s > 0


@given(p=STAGES, m=st.integers(1, 24), forward=SECONDS, backward=SECONDS)
def test_bubble_of_gpipe_and_1f1b_is_the_closed_form(p, m, forward, backward):
    times = equal(p, forward, backward, backward)
    for schedule in (gpipe(p, m), one_f_one_b(p, m)):
        found = simulate(schedule, times).bubble_fraction
        assert math.isclose(found, (p - 1) / (m + p - 1), abs_tol=1e-9)


@given(p=STAGES, chunks=st.integers(1, 4), groups=st.integers(1, 4))
def test_bubble_of_interleaved_is_divided_by_the_chunks(p, chunks, groups):
    m = p * groups
    schedule = interleaved(p, chunks, m)
    found = simulate(schedule, equal(p * chunks)).bubble_fraction
    assert math.isclose(found, (p - 1) / (chunks * m + p - 1), abs_tol=1e-9)


@given(p=STAGES, more=st.integers(0, 12), weight=st.floats(0.1, 1.0))
def test_bubbles_of_zero_bubble_schedules_are_as_published(p, more, weight):
    # Qi et al., table 2, for weight gradients that take no longer than the other tasks.
    times = equal(p, 1.0, 1.0, weight)
    first = bubble_s(zero_bubble(p, p + more), times)
    second = bubble_s(zero_bubble_2(p, 2 * p - 1 + more), times)
    assert math.isclose(first, (p - 1) * (2 - weight), abs_tol=1e-9)
    assert math.isclose(second, (p - 1) * (2 - 2 * weight), abs_tol=1e-9)


@given(
    p=STAGES, m=st.integers(1, 24), seconds=st.tuples(SECONDS, SECONDS, st.floats(0, 1))
)
def test_eager_1f1b_hides_transfers_that_1f1b_waits_for(p, m, seconds):
    forward, backward, share = seconds
    # Two transfers fit beside the tasks of a microbatch, and one beside each task.
    hop = share * min(forward, backward, (forward + backward) / 2)
    times, work = equal(p, forward, backward, 0.0), m * (forward + backward)
    start_s = (p - 1) * (forward + backward + 2 * hop)
    eager = simulate(eager_one_f_one_b(p, m), times, hop).makespan_s
    assert math.isclose(eager, work + start_s, abs_tol=1e-9)
    if m >= p:
        waits_s = 2 * hop * ((m - 1) * (p - 1) // p)
        usual = simulate(one_f_one_b(p, m), times, hop).makespan_s
        assert math.isclose(usual, work + start_s + waits_s, abs_tol=1e-9)


@given(p=STAGES, more=st.integers(0, 12), weight=st.floats(0, 1))
def test_bubble_and_peak_of_dual_pipe_v_are_closed_forms(p, more, weight):
    schedule = dual_pipe_v(p, 2 * p + more)
    found = bubble_s(schedule, equal(2 * p, 1.0, 1.0, weight))
    assert math.isclose(found, (p - 1) * (2 - weight), abs_tol=1e-9)
    assert peak_activations(schedule) == (2 * p + 1,) * p


@given(p=STAGES, m=st.integers(1, 24))
def test_peaks_of_activations_are_as_published(p, m):
    assert peak_activations(gpipe(p, m)) == (m,) * p
    assert peak_activations(one_f_one_b(p, m)) == tuple(
        min(p - stage, m) for stage in range(p)
    )
    assert peak_activations(eager_one_f_one_b(p, m)) == tuple(
        min(2 * (p - stage) - 1, m) for stage in range(p)
    )
    assert max(peak_activations(zero_bubble(p, m))) == min(p, m)
    assert max(peak_activations(zero_bubble_2(p, m))) == min(2 * p - 1, m)


@given(p=STAGES, m=st.integers(1, 16), for_weights=st.floats(0, 1))
def test_zb_h1_needs_no_more_bytes_than_1f1b(p, m, for_weights):
    each = [StageBytes(10.0, 1.0, for_weights)] * p
    assert max(peak_bytes(zero_bubble(p, m), each)) <= 1e-9 + max(
        peak_bytes(one_f_one_b(p, m), each)
    )


@given(p=STAGES, m=st.integers(1, 12), hop=SECONDS)
def test_makespan_lies_between_critical_path_and_all_work(p, m, hop):
    for name in SCHEDULES.keys() - STAGES_PER_SUBMESH.keys():
        schedule = SCHEDULES[name](p, m)
        free = simulate(schedule, equal(p)).makespan_s
        found = simulate(schedule, equal(p), hop).makespan_s
        assert found >= max(free, 2 * p + 2 * (p - 1) * hop) - 1e-9
        assert found <= 3 * p * m + 2 * (p - 1) * m * hop + 1e-9


def test_transfers_of_one_link_go_one_after_another():
    schedule = gpipe(2, 3)
    # The last microbatch leaves stage 0 at 3 s, but the link is free only at 9 s.
    spans = simulate(schedule, equal(2), 4.0).spans[1]
    assert [span.start_s for span in spans[:3]] == [5.0, 9.0, 13.0]


def test_nothing_is_sent_within_a_submesh():
    free = simulate(interleaved(1, 3, 2), equal(3)).makespan_s
    assert simulate(interleaved(1, 3, 2), equal(3), 7.0).makespan_s == free


def test_deadlock_names_stage_and_microbatch():
    text = "F0.0 B0.0 F0.1 B0.1\nF1.0 F1.1 B1.0 B1.1"
    with pytest.raises(
        ScheduleError,
        match=r"deadlocks after 2 tasks.*stage 0, micro"
        r"batch 0 \(B0.0\) for B1.0 or I1.0.*stage 1, microbatch 1",
    ):
        verify(Schedule.parse(text))


def test_weight_gradient_before_input_gradient_is_a_deadlock():
    with pytest.raises(ScheduleError, match=r"W0.0\) for I0.0"):
        verify(Schedule.parse("F0.0 W0.0 I0.0"))


def test_excess_of_memory_names_stage_and_microbatch():
    each = [StageBytes(4 * 2**30, 2**30)] * 2
    with pytest.raises(
        ScheduleError,
        match=r"stage 0 needs 6.00 GiB per device of sub"
        r"mesh 0 at microbatch 1 \(F0.1\), and 5.50 GiB are allowed",
    ):
        simulate(one_f_one_b(2, 4), equal(2), 0.0, each, 5.5 * 2**30)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("F0.0", "stage 0 has the tasks F for microbatch 0"),
        ("F0.0 B0.0 I0.0", "stage 0 has the tasks FBI"),
        ("F0.0 F0.0 B0.0", "task F0.0 runs 2 times"),
        ("F0.0 B0.0\nF2.0 B2.0", r"stages \[0, 2\]; wanted stages from 0"),
        ("F0.0 X0.0", "'X0.0' is no task"),
        ("F0.0 B0.0 F0.2 B0.2", "stage 0 has the tasks none for microbatch 1"),
    ],
)
def test_malformed_schedules_are_refused(text, words):
    with pytest.raises(ScheduleError, match=words):
        Schedule.parse(text)


def test_a_task_on_the_wrong_submesh_is_refused():
    orders = one_f_one_b(2, 1).orders
    with pytest.raises(
        ScheduleError, match=r"F1.0 runs on submesh 0; stage 1 is placed"
    ):
        Schedule((*orders[::-1],), (0, 1), 1)


def test_orders_and_placement_have_to_agree():
    with pytest.raises(ScheduleError, match="an order for each submesh"):
        Schedule(one_f_one_b(2, 1).orders, (0, 2), 1)


def test_counts_below_one_are_refused():
    with pytest.raises(ScheduleError, match="0 stages and 3 microbatches"):
        gpipe(0, 3)
    with pytest.raises(ScheduleError, match="both count from zero"):
        Task(TaskKind.FORWARD, -1, 0)
    with pytest.raises(ScheduleError, match="0 stages per submesh"):
        interleaved(2, 0, 2)


def test_schedules_with_two_stages_per_submesh_want_enough_microbatches():
    with pytest.raises(
        ScheduleError, match=r"3 microbatches on 2 submeshes.*multiple of 2"
    ):
        interleaved(2, 2, 3)
    with pytest.raises(ScheduleError, match=r"3 stages.*two per submesh"):
        SCHEDULES["interleaved"](3, 4)
    with pytest.raises(ScheduleError, match=r"3 microbatches on 2.*two microbatches"):
        dual_pipe_v(2, 3)


def test_wrong_numbers_of_times_and_bytes_are_refused():
    with pytest.raises(ScheduleError, match="times of 1 stages; wanted 2"):
        simulate(gpipe(2, 2), equal(1))
    with pytest.raises(ScheduleError, match="wanted 1, one between each stage"):
        simulate(gpipe(2, 2), equal(2), [1.0, 2.0])
    with pytest.raises(ScheduleError, match="bytes of 1 stages; wanted 2"):
        peak_bytes(gpipe(2, 2), [StageBytes(0, 1)])
    with pytest.raises(ScheduleError, match="at least 0 s"):
        StageTimes(-1.0, 0.0, 0.0)
