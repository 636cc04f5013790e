"""The listings of PartIR (Alabed et al., ASPLOS 2025) as device programs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import meshwright as mw
from meshwright.ir import Op, Program, Value, parse_program, show_program
from meshwright.lower import verify_lowered
from meshwright.rules import Builder

BP = mw.shard({"x": 0}, axis="B")
MP = mw.shard({"w1": 1}, axis="M")
Z3 = mw.shard({"w1": 0, "w2": 1}, axis="B")

SCHEDULES = {"bp": [BP], "bp_mp": [BP, MP], "bp_mp_z3": [BP, MP, Z3]}


def chain(x, w1, w2):
    return (x @ w1) @ w2


def struct(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def lowered_text(fn, mesh, tactics, *args, **options):
    """What runs on a device, checked; it must read back."""
    decided = mw.partition(fn, mesh, tactics, **options).decide(*args)
    verify_lowered(decided.lowered, decided.captured.program)
    text = show_program(decided.lowered.program)
    assert show_program(parse_program(text)) == text
    shardings = ", ".join(map(str, decided.lowered.inputs))
    results = ", ".join(map(str, decided.lowered.outputs))
    return f"in {shardings}\nout {results}\n{text}"


@pytest.mark.parametrize("name", SCHEDULES)
def test_the_worked_example_is_lowered_as_printed(name, golden):
    """Listings 1 to 4: two matmuls on a mesh of 4 by 2."""
    args = (struct(256, 8), struct(8, 16), struct(16, 8))
    text = lowered_text(chain, {"B": 4, "M": 2}, SCHEDULES[name], *args)
    golden(f"chain_{name}", text)


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


def kinds(program: Program) -> list[str]:
    return [op.kind for op in program.walk() if is_move(op)]


def is_move(op: Op) -> bool:
    return op.kind in (
        "all_slice", "all_gather", "all_reduce", "reduce_scatter", "all_to_all", "permute",
    )  # fmt: skip


def moves(fn, mesh, tactics, *args):
    lowered = mw.partition(fn, mesh, tactics).decide(*args).lowered
    return kinds(lowered.program)


def test_a_slice_of_what_was_gathered_is_nothing():
    """`x` is stored as both ops want it: neither gathered nor sliced between them."""
    found = moves(lambda x: jnp.sin(jnp.exp(x)), {"B": 4}, [BP], struct(8, 4))
    assert found == []


def test_a_slice_of_an_all_reduce_is_a_reduce_scatter(golden):
    def step(x, w, y):
        return mw.tag(x @ w, "sum") * y

    tactics = [mw.shard({"x": 1}, axis="B"), mw.shard({"y": 0}, axis="B")]
    args = (struct(8, 16), struct(16, 4), struct(8, 4))
    golden("reduce_scatter", lowered_text(step, {"B": 4}, tactics, *args))


def test_a_gather_and_a_slice_of_another_dim_are_an_all_to_all(golden):
    def step(x, y):
        return jnp.cumsum(x, axis=0), mw.tag(x, "x") * y

    tactics = [mw.shard({"x": 0}, axis="B"), mw.shard({"tag:x": 1}, axis="B")]

    def moved(x, y):
        return jnp.sin(x) @ y

    tactics = [mw.shard({"x": 0}, axis="M"), mw.shard({"y": 0}, axis="B")]
    del step, tactics
    tactics = [mw.shard({"y": 1}, axis="B"), mw.shard({"x": 0}, axis="B")]
    golden("all_to_all", lowered_text(moved, {"B": 4}, tactics, struct(8, 16), struct(16, 8)))
