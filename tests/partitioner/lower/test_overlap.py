"""Product loops compute what collective and product compute, for all dims and sizes."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

from meshwright.machine import Mesh
from meshwright.partitioner.lower import Lowered, Origin, walk_loops
from meshwright.partitioner.lower.overlap import overlap_products
from meshwright.program.ir import Op, Program, Sharding, Value
from meshwright.program.ops import Builder
from meshwright.run.local.spmd import make_executable
from tests.program.ir.verifier import verify

B, R, C, K = "brck"
LEFT, RIGHT, RESULT = (B, R, K), (B, K, C), (B, R, C)


@dataclass(frozen=True)
class Case:
    """A product [b, r, k] @ [b, k, c] on n devices, the extent of each letter per part."""

    n: int
    part: int
    dtype: str
    is_flipped: bool
    other_reader: bool

    def size(self, letter, cut):
        return self.part * self.n if letter == cut else {B: 2, R: 3, C: 4, K: 5}[letter]

    def shape(self, letters, cut):
        return tuple(self.size(letter, cut) for letter in letters)


CASES = st.builds(
    Case,
    n=st.sampled_from([2, 3, 4, 8]),
    part=st.sampled_from([1, 2, 3, 4]),
    dtype=st.sampled_from(["float32", "bfloat16", "int32"]),
    is_flipped=st.booleans(),
    other_reader=st.booleans(),
)


def product(case, left, right, cut):
    """A `dot_general` of the whole operands, with the operands in either order."""
    numbers = (((2,), (1,)), ((0,), (0,)))
    letters, operands = RESULT, (left, right)
    if case.is_flipped:
        numbers, letters = (((1,), (2,)), ((0,), (0,))), (B, C, R)
        operands = right, left
    result = Value(case.shape(letters, cut), case.dtype)
    params = {
        "dimension_numbers": numbers,
        "precision": lax.Precision.HIGHEST,
        "preferred_element_type": np.dtype(jnp.dtype(case.dtype)),
        "out_sharding": None,
    }
    return Op("dot_general", operands, (result,), params, (), "", lax.dot_general_p)


def gathered(case, side, cut):
    """The device program that gathers an operand along a dim, then multiplies."""
    builder = Builder(Mesh({"x": case.n}))
    letters = (LEFT, RIGHT)[side]
    dim = letters.index(cut)
    inputs = [Value(case.shape(each, cut), case.dtype) for each in (LEFT, RIGHT)]
    local = list(inputs[side].shape)
    local[dim] //= case.n
    inputs[side] = Value(tuple(local), case.dtype)
    operands = list(inputs)
    operands[side] = builder.all_gather(inputs[side], dim, ("x",))
    op = product(case, *operands, cut)
    builder.ops.append(op)
    outputs = list(op.results)
    if case.other_reader:
        outputs.append(builder.unary("neg", operands[side]))
    cuts = [[()] * 3, [()] * 3]
    cuts[side][dim] = ("x",)
    stored = [Sharding(tuple(each)) for each in cuts]
    return as_lowered(builder, inputs, stored, outputs, [Sharding(((),) * 3)] * 2)


def scattered(case, cut, is_transposed):
    """The device program of a product over a split k whose result is scattered on a dim."""
    builder = Builder(Mesh({"x": case.n}))
    inputs = [Value(case.shape(each, cut), case.dtype) for each in (LEFT, RIGHT)]
    op = product(case, *inputs, cut)
    builder.ops.append(op)
    (result,) = op.results
    letters = (B, C, R) if case.is_flipped else RESULT
    dim = letters.index(cut)
    if is_transposed:
        order = (1, 2, 0)
        shape = tuple(result.shape[d] for d in order)
        turned = Value(shape, case.dtype)
        params = {"permutation": order}
        builder.ops.append(
            Op("transpose", (result,), (turned,), params, (), "", lax.transpose_p)
        )
        result, dim = turned, order.index(dim)
    output = builder.reduce_scatter(result, dim, ("x",))
    cuts = [()] * 3
    cuts[dim] = ("x",)
    # k is split, so that each device has its own addends.
    wide = [
        Sharding(((), (), ("x",))),
        Sharding(((), ("x",), ())),
    ]
    return as_lowered(builder, inputs, wide, [output], [Sharding(tuple(cuts))])


def as_lowered(builder, inputs, stored, outputs, made):
    program = Program(tuple(inputs), tuple(builder.ops), tuple(outputs))
    return Lowered(program, builder.mesh, tuple(stored), tuple(made[: len(outputs)]))


def looped(lowered):
    collectives = (op for op in lowered.program.ops if "reason" in op.params)
    origins = {op: Origin(0, 0, ("x",), is_read=True) for op in collectives}
    program = overlap_products(lowered.program, lowered.mesh, origins, lambda op: True)
    verify(program)
    assert {op for op in program.ops if op.kind == "permute"} == origins.keys()
    kinds = {op.kind for op in program.ops}
    assert kinds.isdisjoint({"all_gather", "reduce_scatter"})
    made = Lowered(program, lowered.mesh, lowered.inputs, lowered.outputs)
    return made, len(origins)


def run(lowered):
    leaves = []
    for value, sharding in zip(lowered.program.inputs, lowered.inputs, strict=True):
        shape = [
            size * lowered.mesh.size(axes)
            for size, axes in zip(value.shape, sharding.dims, strict=True)
        ]
        random = np.random.default_rng(len(leaves)).integers(-4, 5, shape)
        leaves.append(
            jnp.asarray(random / (1 if value.dtype == "int32" else 3), value.dtype)
        )
    outputs = jax.jit(make_executable(lowered).jitted)(*leaves)
    return [np.asarray(each, np.float64) for each in outputs]


def assert_equal(lowered, dtype):
    made, num_permutes = looped(lowered)
    scale = {"float32": 1e-5, "bfloat16": 0.05, "int32": 0.0}[dtype]
    for mine, wanted in zip(run(made), run(lowered), strict=True):
        np.testing.assert_allclose(mine, wanted, atol=scale * (1 + abs(wanted).max()))
    return num_permutes


@settings(max_examples=6)
@given(CASES, st.sampled_from([(0, B), (0, R), (0, K), (1, B), (1, C), (1, K)]))
def test_a_gather_beside_its_product_gives_the_same_numbers(case, place):
    assert assert_equal(gathered(case, *place), case.dtype) == case.n - 1


@settings(max_examples=6)
@given(CASES, st.sampled_from([B, R, C]), st.booleans())
def test_a_product_beside_its_scatter_gives_the_same_numbers(case, cut, is_transposed):
    num_permutes = assert_equal(scattered(case, cut, is_transposed), case.dtype)
    assert num_permutes == (case.n - 1) * (1 if case.part % 2 else 2)


@pytest.mark.slow
@settings(max_examples=60)
@given(CASES, st.sampled_from([(0, B), (0, R), (0, K), (1, B), (1, C), (1, K)]))
def test_many_gathers_beside_their_products(case, place):
    assert_equal(gathered(case, *place), case.dtype)


@pytest.mark.slow
@settings(max_examples=60)
@given(CASES, st.sampled_from([B, R, C]), st.booleans())
def test_many_products_beside_their_scatters(case, cut, is_transposed):
    assert_equal(scattered(case, cut, is_transposed), case.dtype)


@pytest.mark.parametrize("n", [4, 8])
def test_parts_go_both_ways_around_a_multiple_of_four_devices(n):
    program, _ = looped(gathered(Case(n, 2, "float32", False, False), 0, R))
    pairs = [op.params["pairs"] for op in program.program.ops if op.kind == "permute"]
    steps = [(there - here) % n for ((here, there), *_) in pairs]
    assert (steps.count(n - 1), steps.count(1)) == (n // 2 - 1, n // 2)


def test_a_gather_that_others_read_before_the_product_stays():
    lowered = gathered(Case(4, 2, "float32", False, True), 0, R)
    *start, dot, neg = lowered.program.ops
    program = Program(
        lowered.program.inputs, (*start, neg, dot), lowered.program.outputs
    )
    assert not list(walk_loops(program, lambda op: True))
