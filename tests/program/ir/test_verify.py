from dataclasses import replace

import numpy as np
import pytest

import meshwright as mw
from meshwright.partitioner.lower import Lowered
from meshwright.program.capture import capture
from meshwright.program.ir import Op, Program, Value, Wire, whole
from meshwright.program.ops import Builder
from meshwright.program.rewrite.dead_code import eliminate_dead_code
from tests.partitioner.lower.verifier import verify_lowered
from tests.program.ir.programs import CASES
from tests.program.ir.verifier import verify
from zoo import gpt

MESH = mw.Mesh({"a": 2, "b": 2})
SMALL = gpt.Config(2, 16, 4, 32, 32, sequence=8, batch=4)


def every_leaf(dim):
    """A tactic that splits that dim of every leaf that has it."""
    return lambda path, value: dim if len(value.shape) > dim else None


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_pass_leaves_a_valid_program(case):
    captured = capture(case.fn, case.args)
    verify(captured.program)
    verify(eliminate_dead_code(captured.program))
    tactics = [mw.shard(every_leaf(0), axis="a"), mw.shard(every_leaf(1), axis="b")]
    for chosen in ([], tactics[:1], tactics) if case.args else ([],):
        for gather in ("shared", "at_use"):
            step = mw.partition(case.fn, MESH, chosen, gather=gather)
            decided = step.decide(*case.args)
            verify_lowered(decided.lowered, decided.captured.program)


@pytest.mark.parametrize("schedule", gpt.schedules)
def test_a_train_step_is_valid_after_every_pass(schedule):
    mesh = {"batch": 2, "model": 2}
    step = mw.partition(gpt.train_step, mesh, gpt.schedules[schedule], gather="at_use")
    decided = step.decide(*gpt.shapes(SMALL))
    verify(decided.captured.program)
    verify_lowered(decided.lowered, decided.captured.program)


# -- unsound programs ------------------------------------------------------------------

X, Y, Z = (Value((2, 3), "float32") for _ in range(3))
INNER, INNER_OUT = Value((3,), "float32"), Value((3,), "float32")
BODY = Program((INNER,), (Op("sin", (INNER,), (INNER_OUT,)),), (INNER_OUT,))
WIRES = (
    Wire(0, ((0, 0),), is_stacked=True),
    Wire(None, (), ((0, 0),), 0, is_stacked=True),
)
SCAN = Op("scan", (X,), (Y,), {"length": 2}, (BODY,), wires=WIRES)


def one(*ops, outputs=(Y,)):
    return Program((X,), ops, outputs)


UNSOUND = {
    "operand 1 of add, f32[2, 3], is not made before": one(Op("add", (X, Z), (Y,))),
    "a result of sin, f32[2, 3], is made twice": one(
        Op("sin", (X,), (Y,)), Op("sin", (X,), (Y,))
    ),
    "an input or constant, f32[2, 3], is made twice": Program((X, X), (), ()),
    "output 0, f32[2, 3], is not made before": one(outputs=(Z,)),
    "wires of sin name operands [0], wanted []": one(
        Op("sin", (X,), (Y,), wires=(Wire(0),))
    ),
    "wires of scan name results [], wanted [0]": one(replace(SCAN, wires=WIRES[:1])),
    "wires of scan name input of body 0s [0, 0], wanted [0]": one(
        replace(SCAN, wires=(Wire(0, ((0, 0), (0, 0)), is_stacked=True), WIRES[1]))
    ),
    "of scan differ: [((2, 3), 'float32'), ((3,), 'float32')]": one(
        replace(SCAN, wires=(Wire(0, ((0, 0),)), WIRES[1]))
    ),
    "is of {'2'}, wanted 5": one(replace(SCAN, params={"length": 5})),
    "operand 0 of sin, f32[2, 3], is not made before": one(
        replace(
            SCAN,
            bodies=(replace(BODY, ops=(Op("sin", (X,), (INNER_OUT,)),)),),
        )
    ),
}


def test_a_valid_program_passes():
    verify(one(SCAN))
    verify(one(Op("sin", (X,), (Y,))))


@pytest.mark.parametrize("words", UNSOUND)
def test_an_invalid_program_is_refused_with_a_reason(words):
    with pytest.raises(AssertionError) as caught:
        verify(UNSOUND[words])
    assert words in str(caught.value)


def test_the_message_shows_the_neighbours():
    ops = [Op("sin", (X,), (Y,)), Op("add", (X, Z), (Value((2, 3), "float32"),))]
    with pytest.raises(AssertionError) as caught:
        verify(one(*ops))
    assert "\n   %1: f32[2, 3] = sin %0\n-> %3: f32[2, 3] = add %0, %2" in str(
        caught.value
    )


# -- unsound device programs -----------------------------------------------------------


def lowered_chain() -> tuple[Lowered, Program]:
    step = mw.partition(
        lambda x, w: x @ w, {"a": 2, "b": 4}, [mw.shard({"x": 1}, axis="b")]
    )
    decided = step.decide(np.ones((8, 16), "f"), np.ones((16, 4), "f"))
    return decided.lowered, decided.captured.program


def change_collective(lowered: Lowered, **params) -> Lowered:
    ops = [
        replace(op, params={**op.params, **params}) if op.kind == "all_reduce" else op
        for op in lowered.program.ops
    ]
    return replace(lowered, program=replace(lowered.program, ops=tuple(ops)))


def test_shardings_that_do_not_fit_the_local_shapes_are_refused():
    lowered, source = lowered_chain()
    verify_lowered(lowered, source)
    swapped = replace(lowered, inputs=lowered.inputs[::-1])
    with pytest.raises(AssertionError, match=r"input 0 is f32\[8, 4\], wanted"):
        verify_lowered(swapped, source)


@pytest.mark.parametrize(
    ("axes", "words"),
    [
        (("c",), "not the axes of a=2,b=4"),
        ((), "no axes"),
        (("b", "b"), "an axis twice"),
    ],
)
def test_collectives_over_wrong_axes_are_refused(axes, words):
    lowered, source = lowered_chain()
    with pytest.raises(AssertionError, match=words):
        verify_lowered(change_collective(lowered, axes=axes), source)


@pytest.mark.parametrize("kind", ["all_slice", "all_gather", "reduce_scatter"])
def test_a_collective_of_the_wrong_shape_is_refused(kind):
    mesh = mw.Mesh({"a": 2})
    x = Value((4,), "float32")
    builder = Builder(mesh)
    getattr(builder, kind)(x, 0, ("a",))
    made = builder.ops[0]
    wrong = replace(made, results=(Value((4,), "float32"),))
    program = Program((x,), (wrong,), wrong.results)
    lowered = Lowered(program, mesh, (whole(1),), (whole(1),))
    with pytest.raises(AssertionError, match="wanted shape"):
        verify_lowered(lowered, Program((x,), (), (x,)))
