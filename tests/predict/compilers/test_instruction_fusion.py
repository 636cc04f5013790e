"""Instruction fusion: values that a device program writes to memory."""

import jax
import jax.numpy as jnp
from hypothesis import given
from hypothesis import strategies as st
from jax import lax

from meshwright.predict.compilers.model.fusion import FusionKind
from meshwright.program.capture import capture
from meshwright.program.ir import Op, Program, Value, Wire
from tests.predict.compilers.compiled import fusions_of

X = jax.ShapeDtypeStruct((64, 128), jnp.float32)
W = jax.ShapeDtypeStruct((128, 128), jnp.float32)


def fusions(fn, *args):
    return fusions_of(capture(fn, args).program)


def test_elementwise_ops_form_one_fusion():
    (fusion,) = fusions(lambda x: jnp.tanh(x * 2 + 1) - x, X)
    assert fusion.kind is FusionKind.LOOP
    assert fusion.root.kind == "sub"
    assert fusion.work.flops == 3 * 64 * 128
    assert fusion.work.transcendentals == 64 * 128


def test_a_product_fuses_its_producers_and_its_consumer():
    (product,) = fusions(lambda x, w: jnp.sin(jnp.tanh(x) @ w), X, W)
    assert product.kind is FusionKind.PRODUCT
    assert product.work.transcendentals == 2 * 64 * 128
    assert [str(v) for v in product.reads] == ["f32[64, 128]", "f32[128, 128]"]


def test_every_consumer_recomputes_an_elementwise_op():
    first, second = fusions(lambda x, w: (jnp.tanh(x) @ w, jnp.tanh(x).sum(1)), X, W)
    assert first.work.transcendentals == second.work.transcendentals == 64 * 128


def test_a_result_of_the_program_is_written_though_others_read_it():
    assert len(fusions(lambda x: (x + 1, (x + 1) * 2), X)) == 2


def test_a_sort_needs_its_operand_in_memory():
    kinds = [fusion.kind for fusion in fusions(lambda x: jnp.sort(x * 2), X)]
    assert kinds == [FusionKind.LOOP, FusionKind.OTHER]


def test_a_reshape_is_neither_a_fusion_nor_a_copy():
    (fusion,) = fusions(lambda x: x.reshape(128, 64).sum(0), X)
    assert fusion.reads[0].shape == (64, 128)


def test_a_scatter_writes_the_operand_it_starts_from():
    index = jax.ShapeDtypeStruct((4,), jnp.int32)

    def fn(i):
        return jnp.zeros((64, 128)).at[i].add(1.0)

    assert [fusion.root.kind for fusion in fusions(fn, index)][-1] == "scatter-add"


def test_a_one_hot_scatter_is_elementwise():
    """The gradient of picking one element per row is a comparison with the index."""
    index = jax.ShapeDtypeStruct((64, 1), jnp.int32)

    def fn(x, i):
        return jax.grad(lambda x: jnp.take_along_axis(x, i, axis=1).sum())(x) * x

    (fusion,) = fusions(fn, X, index)
    assert fusion.kind is FusionKind.LOOP


def test_a_loop_body_recomputes_a_broadcast():
    def fn(x, row):
        wide = jnp.broadcast_to(row, (64, 128))
        return lax.scan(lambda c, _: (c + wide, None), x, length=4)[0]

    row = jax.ShapeDtypeStruct((128,), jnp.float32)
    (loop,) = fusions(fn, X, row)
    assert loop.kind is FusionKind.REGION
    assert {v.shape for v in loop.reads} == {(64, 128), (128,)}


def test_a_long_chain_of_elementwise_ops_is_one_fusion():
    def chain(x):
        for _ in range(2000):
            x = x + 1.0
        return x

    assert len(fusions(chain, X)) == 1


OPS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 9), st.integers(0, 9)), min_size=1
)


def build(ops):
    """A program of products, sums, reductions and elementwise ops, drawn as numbers."""

    def fn(x):
        made = [x]
        for kind, a, b in ops:
            left, right = made[a % len(made)], made[b % len(made)]
            made.append(
                [
                    lambda p, q: p @ q,
                    lambda p, q: p + q,
                    lambda p, q: jnp.broadcast_to(p.sum(0), q.shape),
                    lambda p, q: jnp.tanh(p) * q,
                ][kind](left, right)
            )
        return made[-1]

    return capture(fn, (jax.ShapeDtypeStruct((32, 32), jnp.float32),)).program


@given(OPS)
def test_a_fusion_reads_only_values_written_before(ops):
    program = build(ops)
    known = {*program.inputs}
    for fusion in fusions_of(program):
        assert set(fusion.reads) <= known
        known |= set(fusion.writes)
    assert set(program.outputs) <= known


def test_an_addition_with_several_consumers_is_stored():
    """Otherwise every consumer would add up a whole residual stream."""

    def fn(x, y, w):
        stream = x + y
        return stream @ w, stream @ w.T

    kinds = [fusion.kind for fusion in fusions(fn, X, X, W)]
    assert kinds == [FusionKind.LOOP, FusionKind.PRODUCT, FusionKind.PRODUCT]


def test_paths_that_join_in_a_stored_op_are_fused_into_it():
    def fn(x, y):
        z = x + y
        return lax.sort(z * jax.nn.sigmoid(z))

    (first, _) = fusions(fn, X, X)
    assert (first.root.kind, len(first.reads)) == ("mul", 2)


def test_paths_that_join_in_an_output_are_fused_into_it():
    def fn(x, y):
        z = x + y
        return z * jax.nn.sigmoid(z)

    assert [fusion.root.kind for fusion in fusions(fn, X, X)] == ["mul"]


def test_a_value_whose_paths_join_in_a_recomputed_op_is_stored():
    def fn(x, y, w):
        z = x + y
        return (z * jax.nn.sigmoid(z)) @ w

    assert [fusion.root.kind for fusion in fusions(fn, X, X, W)] == [
        "add",
        "dot_general",
    ]


def test_a_convolution_does_not_fuse_a_reshaped_operand():
    def fn(x, w):
        return lax.conv(x, w, (1, 1), "SAME")

    kernel = jax.ShapeDtypeStruct((16, 16, 3, 3), jnp.float32)
    image = jax.ShapeDtypeStruct((8, 16, 24, 24), jnp.float32)
    assert len(fusions(lambda x, w: fn(jnp.tanh(x), w), image, kernel)) == 1
    assert len(fusions(lambda x, w: fn(x.repeat(2, axis=2), w), image, kernel)) == 2


def test_a_value_that_is_only_cast_for_a_loop_is_stored():
    """The second result of an op is read by a loop alone, which keeps it as bfloat16."""
    x, first, second, carry, inner, inside, made, result = (
        Value((8, 8), "float32") for _ in range(8)
    )
    numbers = {"dimension_numbers": (((1,), (0,)), ((), ()))}
    body = Program(
        (inside, inner),
        (Op("dot_general", (inner, inside), (made,), numbers),),
        (made,),
    )
    wires = (
        Wire(operand=0, inputs=((0, 0),)),
        Wire(operand=1, inputs=((0, 1),), outputs=((0, 0),), result=0),
    )
    ops = (
        Op("custom_call", (x,), (first, second)),
        Op("scan", (second, carry), (result,), {"length": 3}, (body,), wires=wires),
    )
    program = Program((x, carry), ops, (result, first))
    units = fusions_of(program, bfloat16=[inside])
    assert any(second in fusion.writes for fusion in units)
    assert [fusion.root.kind for fusion in units] == [
        "custom_call", "convert_element_type", "scan",
    ]  # fmt: skip
