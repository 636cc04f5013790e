"""The listings of PartIR (Alabed et al., ASPLOS 2025) as device programs."""

import re
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import meshwright as mw
from meshwright.app.explain.show import show_explanation
from meshwright.program.ir import Op, Program, Value, show_program
from meshwright.program.ops import Builder
from tests.partitioner.lower.verifier import verify_lowered
from tests.program.ir.parser import parse_program

BP = mw.shard({"x": 0}, axis="B")
MP = mw.shard({"w1": 1}, axis="M")
Z3 = mw.shard({"w1": 0, "w2": 1}, axis="B")

WHERE = re.compile(r"[^() ]*\.py:\d+")

SCHEDULES = {"bp": [BP], "bp_mp": [BP, MP], "bp_mp_z3": [BP, MP, Z3]}


def chain(x, w1, w2):
    return (x @ w1) @ w2


def struct(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def lowered_text(fn, mesh, tactics, *args):
    """What runs on a device, checked; without parameters of JAX's own primitives."""
    decided = mw.partition(fn, mesh, tactics).decide(*args)
    lowered = decided.lowered
    verify_lowered(lowered, decided.captured.program)
    shown = replace(lowered.program, ops=tuple(map(bare, lowered.program.ops)))
    text = show_program(shown)
    assert show_program(parse_program(text)) == text
    shardings = zip(decided.captured.paths, lowered.inputs, strict=True)
    ends = [f"{path} {sharding}" for path, sharding in shardings]
    results = ", ".join(map(str, lowered.outputs))
    return f"in {', '.join(ends)}\nout {results}\n{text}"


def bare(op: Op) -> Op:
    return op if op.primitive is None else replace(op, params={})


@pytest.mark.parametrize("name", SCHEDULES)
def test_the_worked_example_is_lowered_as_printed(name, golden):
    """Listings 1 to 4: two matmuls on a mesh of 4 by 2."""
    args = (struct(256, 8), struct(8, 16), struct(16, 8))
    text = lowered_text(chain, {"B": 4, "M": 2}, SCHEDULES[name], *args)
    golden(f"chain_{name}", text)


def test_the_worked_example_explains_itself(golden):
    args = (struct(256, 8), struct(8, 16), struct(16, 8))
    plan = mw.partition(chain, {"B": 4, "M": 2}, SCHEDULES["bp_mp_z3"]).plan(*args)
    golden("chain_explained", WHERE.sub("here", show_explanation(plan)))


def test_the_worked_example_computes_the_same():
    rng = np.random.default_rng(0)
    shapes = ((256, 8), (8, 16), (16, 8))
    args = [rng.normal(size=s).astype("float32") for s in shapes]
    step = mw.partition(chain, {"B": 4, "M": 2}, SCHEDULES["bp_mp_z3"])
    assert step.check(*args).ok


def test_collectives_change_shapes_as_printed(golden):
    """Listing 8, on a mesh of 2 by 4 by 8."""
    builder = Builder(mw.Mesh({"x1": 2, "x2": 4, "x3": 8}))
    inputs = [
        Value(shape, "float32")
        for shape in ((16, 5, 40), (16, 5, 40), (8, 10, 16), (16, 5, 40), (16, 32))
    ]
    one = builder.all_slice(builder.all_slice(inputs[0], 0, ("x1",)), 2, ("x2",))
    two = builder.all_slice(builder.all_slice(inputs[1], 0, ("x1", "x3")), 2, ("x2",))
    three = builder.all_gather(builder.all_gather(inputs[2], 0, ("x1",)), 1, ("x3",))
    four = builder.reduce_scatter(
        builder.reduce_scatter(inputs[3], 0, ("x1",)), 2, ("x2",)
    )
    five = builder.all_to_all(inputs[4], 0, 1, ("x1", "x2"))
    outputs = (one, two, three, four, five)
    assert [v.shape for v in outputs] == [
        (8, 5, 10), (1, 5, 10), (16, 80, 16), (8, 5, 10), (128, 4),
    ]  # fmt: skip
    golden("shapes", show_program(Program(tuple(inputs), tuple(builder.ops), outputs)))


# -- fusion ----------------------------------------------------------------------------


def test_a_slice_of_what_was_gathered_is_nothing(golden):
    """`x` is stored as both ops want it: neither gathered nor sliced between them."""
    text = lowered_text(lambda x: jnp.sin(jnp.exp(x)), {"B": 4}, [BP], struct(8, 4))
    golden("slice_of_gather", text)


def test_a_slice_of_an_all_reduce_is_a_reduce_scatter(golden):
    def step(x, w, y):
        return (x @ w) * y

    tactics = [mw.shard({"x": 1}, axis="B"), mw.shard({"y": 0}, axis="B")]
    args = (struct(8, 16), struct(16, 4), struct(8, 4))
    golden("slice_of_reduce", lowered_text(step, {"B": 4}, tactics, *args))


@pytest.mark.parametrize("mesh", [{"B": 4}, {"B": 2, "M": 2}], ids=["one", "two"])
def test_a_gather_and_a_slice_of_another_dim_are_an_all_to_all(mesh, golden):
    """All axes of one dim move at once."""

    def step(x):
        rows = jnp.fft.fft(x, axis=1)
        return mw.tag(jnp.fft.fft(rows.T, axis=1), "columns")

    tactics = [mw.shard({"x": 0}, axis=axis) for axis in mesh]
    tactics += [mw.shard({"tag:columns": 0}, axis=axis) for axis in mesh]
    text = lowered_text(step, mesh, tactics, struct(8, 16))
    golden(f"all_to_all_{'_'.join(mesh)}", text)


# -- what PartIR refuses ---------------------------------------------------------------


def test_a_conflict_stops_the_propagation_and_is_told(golden):
    """Both operands of `x @ x.T` come cut; the op stays whole."""
    args = (lambda x: x @ x.T, {"B": 4}, [BP], struct(8, 16))
    step = mw.partition(*args[:3]).plan(args[3]).steps[-1]
    told = "\n".join(WHERE.sub("here", line) for line in step.conflicts)
    golden("conflict", f"{lowered_text(*args)}\n{told}")


def test_a_tag_kept_whole_resolves_the_conflict(golden):
    """Only the transposed operand is gathered."""
    tactics = [mw.replicate("tag:t", axis="B"), BP]
    fn = lambda x: x @ mw.tag(x.T, "t")  # noqa: E731
    golden("conflict_resolved", lowered_text(fn, {"B": 4}, tactics, struct(8, 16)))


def test_an_axis_spills_over_the_dims_of_a_reshape(golden):
    """16 on 8 devices to 4 by 4: 4 ways over the first dim, 2 ways over the second."""
    fn = lambda x: jnp.sin(x.reshape(4, 4))  # noqa: E731
    golden("reshape", lowered_text(fn, {"B": 8}, [BP], struct(16)))
    report = mw.partition(fn, {"B": 8}, [BP]).check(np.arange(16, dtype="float32"))
    assert report.ok
