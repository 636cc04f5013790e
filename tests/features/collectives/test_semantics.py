"""The checker of reduction programs: P2's example, laws, and wrong programs refused."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.errors import CollectiveError
from meshwright.features.collectives.instruction import (
    CollectiveKind,
    Form,
    ReductionStep,
    parse_program,
    show_program,
)
from meshwright.features.collectives.semantics import (
    ReductionGoal,
    require_correct,
    run_step,
    why_wrong,
)
from meshwright.features.collectives.synthesis import synthesize

EXAMPLE = (1, 2, 2, 4)
"""One rack of 2 servers of 2 CPUs of 4 GPUs; CPUs A, B, C, D have depth 3."""


def groups(form, depth, under=None):
    return ReductionStep(CollectiveKind.ALL_REDUCE, form, depth, under).groups(EXAMPLE)


def test_the_groups_of_p2s_example():
    assert groups(Form.INSIDE, 3) == tuple(
        tuple(range(start, start + 4)) for start in (0, 4, 8, 12)
    )
    assert groups(Form.PARALLEL, 3, 2)[0] == (0, 4)
    assert len(groups(Form.PARALLEL, 3, 2)) == 8
    assert groups(Form.PARALLEL, 3, 1) == tuple(
        (i, i + 4, i + 8, i + 12) for i in range(4)
    )
    assert groups(Form.MASTER, 3, 1) == ((0, 4, 8, 12),)
    assert [len(g) for g in groups(Form.INSIDE, 2)] == [8, 8]
    assert [len(g) for g in groups(Form.PARALLEL, 2, 1)] == [2] * 8
    assert groups(Form.INSIDE, 1) == (tuple(range(16)),)


@pytest.mark.parametrize(
    ("text", "step", "why"),
    [
        ("all_reduce inside 1; all_reduce inside 0", 2, "added twice"),
        ("reduce_scatter inside 1; all_reduce inside 0", 2, "different rows"),
        ("reduce_scatter inside 1; all_reduce parallel 1 under 0", 3, "ends without"),
        ("all_gather inside 0", 1, "same row"),
        ("broadcast inside 0", 1, "addends that the root lacks"),
        ("all_reduce master 1 under 0", 1, "leaves out devices"),
        ("all_reduce inside 0; broadcast inside 0", 2, "already"),
        ("reduce inside 0; all_reduce inside 1", 2, "no chunks|different"),
        ("all_reduce inside 2", 1, "groups of one device"),
        ("all_reduce inside 5", 1, "depth 2"),
    ],
)
def test_a_wrong_program_is_refused_with_the_step_that_breaks_it(text, step, why):
    with pytest.raises(CollectiveError, match=f"step {step}: .*({why})"):
        require_correct(parse_program(text), (2, 4))


def test_chunks_gathered_in_another_order_do_not_pass():
    text = (
        "reduce_scatter inside 1; reduce_scatter parallel 1 under 0; "
        "all_gather inside 1; all_gather parallel 1 under 0"
    )
    assert "ends without" in str(why_wrong(parse_program(text), (2, 4)))


FACTORS = st.lists(st.integers(2, 4), min_size=1, max_size=3).map(tuple)


@settings(max_examples=40, deadline=None)
@given(FACTORS, st.sampled_from(ReductionGoal), st.data())
def test_every_synthesised_program_leads_from_the_start_to_the_goal(
    factors, goal, data
):
    programs = synthesize(factors, goal)
    program = data.draw(st.sampled_from(programs))
    assert why_wrong(program, factors, goal) is None


def numbers(program, factors, values):
    """What devices hold after a program, with numbers in place of masks."""
    state = ReductionGoal.ALL_REDUCE.start(len(values))
    for step in program:
        state = run_step(state, step, factors)
    return [
        {row: sum(values[d, row] for d in range(len(values)) if mask >> d & 1)}
        for held in state
        for row, mask in held
    ]


@settings(max_examples=20, deadline=None)
@given(st.sampled_from([(2, 3), (4, 2), (2, 2, 2)]), st.data())
def test_programs_compute_the_sum_of_all_devices(factors, data):
    count = int(np.prod(factors))
    program = data.draw(st.sampled_from(synthesize(factors)))
    values = np.arange(1.0, 1 + count * count).reshape(count, count) ** 2
    wanted = values.sum(0)
    held = numbers(program, factors, values)
    assert len(held) == count * count
    assert all(total == wanted[row] for each in held for row, total in each.items())


@settings(max_examples=40, deadline=None)
@given(FACTORS, st.data())
def test_a_program_without_one_step_is_wrong(factors, data):
    """Every step of a program makes progress, so that none can be left out."""
    program = data.draw(st.sampled_from(synthesize(factors)))
    left_out = data.draw(st.integers(0, len(program) - 1))
    shorter = program[:left_out] + program[left_out + 1 :]
    assert why_wrong(shorter, factors) is not None


@given(FACTORS, st.data())
@settings(max_examples=30, deadline=None)
def test_a_printed_program_reads_back(factors, data):
    program = data.draw(st.sampled_from(synthesize(factors)))
    assert parse_program(show_program(program)) == program


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("all_reduce", "cannot read step 'all_reduce'"),
        ("all_reducer inside 0", "did you mean 'all_reduce'"),
        ("all_reduce across 1 under 0", "unknown word 'across'"),
        ("all_reduce parallel 1", "parallel and master need it"),
        ("all_reduce inside 1 under 0", "inside has none"),
        ("all_reduce parallel 0 under 1", "must be less than 0"),
    ],
)
def test_malformed_steps_say_what_is_wanted(text, why):
    with pytest.raises(CollectiveError, match=why):
        parse_program(text)
