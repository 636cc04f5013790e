"""Values that a softmax of 16-bit scores stores on TPUs."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import meshwright as mw
from meshwright.machine import load_machine
from meshwright.predict.compilers.model.dataflow import dataflow_of
from meshwright.predict.compilers.model.tiled_layouts import Layouts
from meshwright.predict.compilers.targets import compiler_of
from meshwright.predict.compilers.tpu.bfloat16_propagation import bfloat16_values
from meshwright.predict.compilers.tpu.softmax_fusion import (
    SoftmaxFusion,
    _row,
)
from meshwright.predict.compilers.xla.shared_passes import PLAIN
from meshwright.program.capture import capture
from tests.predict.compilers.compiled import fusions_of

SIZE = 512
SHAPE = (4, SIZE, 64)
MASK = jax.ShapeDtypeStruct((SIZE, SIZE), jnp.bool_)
HALF = jax.ShapeDtypeStruct(SHAPE, jnp.bfloat16)


def product(q, k):
    return jnp.einsum("bqh,bkh->bqk", q, k)


def of_scaled(q, k, mask):
    return product(q, k).astype(jnp.float32) * 0.125


def of_masked(q, k, mask):
    return jnp.where(mask, (product(q, k) * 0.125).astype(jnp.float32), -1e30)


def of_widened(q, k, mask):
    return (product(q, k) * 0.125).astype(jnp.float32)


def of_summed_in_32_bits(q, k, mask):
    return jnp.einsum("bqh,bkh->bqk", q, k, preferred_element_type=jnp.float32) * 0.125


def of_transposed(q, k, mask):
    return jnp.swapaxes(product(k, q).astype(jnp.float32), 1, 2) * 0.125


def written(scores, compiler, way_back=True):
    """Dtypes of stored values of the shape of the scores, in order."""

    def attention(q, k, v, mask):
        weights = jax.nn.softmax(scores(q, k, mask), -1).astype(jnp.bfloat16)
        return jnp.einsum("bqk,bkh->bqh", weights, v)

    def step(q, k, v, mask, ct):
        out, vjp = jax.vjp(lambda *qkv: attention(*qkv, mask), q, k, v)
        return (out, *vjp(ct)) if way_back else out

    program = capture(step, (HALF, HALF, HALF, MASK, HALF)).program
    fusions = fusions_of(program, compiler, bfloat16_values(program))
    size = (4, SIZE, SIZE)
    return [v.dtype for fusion in fusions for v in fusion.writes if v.shape == size]


TPUS = {
    chip: compiler_of(load_machine(f"tpu-{chip}", None))
    for chip in ("v2", "v3", "v4", "v5e", "v5p", "v6e", "7x")
}

HALVES = {"v4": 3, "v5e": 2, "v5p": 3, "v6e": 2, "7x": 3}
"""Stored values of 16 bits: weights if the vector unit is slow, and both gradients."""

WIDENED = {"v4": 4, "v5e": 2, "v5p": 3}
"""Stored values: scores and the gradient of weights, weights and that of scores."""


@pytest.mark.parametrize("chip", HALVES)
@pytest.mark.parametrize("scores", [of_scaled, of_masked])
def test_exponentials_are_stored_instead_of_scores(scores, chip):
    """Dumps of libtpu 0.0.50 show the same."""
    found = written(scores, TPUS[chip])
    assert found == ["float32", *["bfloat16"] * HALVES[chip]]


@pytest.mark.parametrize("chip", HALVES)
def test_exponentials_are_stored_for_products_of_16_bits_summed_in_32(chip):
    """The gradient of weights then has 32 bits and is read from its product."""
    found = written(of_summed_in_32_bits, TPUS[chip])
    assert found == ["float32", *["bfloat16"] * (HALVES[chip] - 1)]


@pytest.mark.parametrize("chip", ["v2", "v3"])
def test_chips_with_small_scratch_memory_do_not_fuse_softmaxes(chip):
    assert set(written(of_scaled, TPUS[chip])) == {"bfloat16"}


@pytest.mark.parametrize("chip", WIDENED)
def test_scores_that_are_only_converted_are_not_fused(chip):
    assert written(of_widened, TPUS[chip]) == ["bfloat16"] * WIDENED[chip]


def test_transposed_scores_and_other_compilers_are_not_fused():
    assert written(of_transposed, TPUS["v4"], way_back=False)[0] == "bfloat16"
    assert written(of_scaled, PLAIN, way_back=False)[0] == "bfloat16"


def test_a_softmax_over_a_vocabulary_is_not_fused():
    def loss(x, w):
        logits = (x @ w).astype(jnp.float32) * 2.0
        return jax.nn.softmax(logits, -1) @ jnp.ones((16_384, 1))

    x = jax.ShapeDtypeStruct((64, 32), jnp.bfloat16)
    w = jax.ShapeDtypeStruct((32, 16_384), jnp.bfloat16)
    fusions = fusions_of(capture(loss, (x, w)).program, TPUS["v4"])
    wide = [v.dtype for u in fusions for v in u.writes if v.shape == (64, 16_384)]
    assert wide[0] == "bfloat16"


def test_a_converted_value_is_stored_only_for_consumers_that_cannot_convert_it():
    def fn(x, w, i):
        scores = (x @ w).astype(jnp.float32)
        chosen = jnp.take_along_axis(scores, i[:, None], -1)
        return chosen, scores.max(-1), jnp.exp(scores).sum(-1)

    x = jax.ShapeDtypeStruct((64, 32), jnp.bfloat16)
    w = jax.ShapeDtypeStruct((32, 4096), jnp.bfloat16)
    i = jax.ShapeDtypeStruct((64,), jnp.int32)
    fusions = fusions_of(capture(fn, (x, w, i)).program, TPUS["v4"])
    made = {v: v.dtype for u in fusions for v in u.writes if v.shape == (64, 4096)}
    assert sorted(made.values()) == ["bfloat16", "float32"]
    for fusion in fusions:
        dtypes = [made[v] for v in fusion.reads if v in made]
        if fusion.root.kind in ("reduce_max", "reduce_sum"):
            assert dtypes == ["bfloat16"]
        if fusion.root.kind == "gather":
            assert dtypes == ["float32"]


def joined(fn, *args, longest=2560):
    """Dtypes and shapes of values that are stored because softmaxes are fused."""
    flow = dataflow_of(capture(fn, args).program, Layouts())
    found = SoftmaxFusion(longest)(flow)
    return [(v.dtype, v.shape) for v in found.stored - flow.stored]


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_rows_may_be_along_any_one_dim(axis):
    def fn(q, k):
        return jax.nn.softmax(of_scaled(q, k, None), axis) * 2.0

    assert joined(fn, HALF, HALF) == [("float32", (4, SIZE, SIZE))]


def test_scores_of_long_rows_are_stored_too():
    def fn(q, k):
        return jax.nn.softmax(of_scaled(q, k, None)) * 2.0

    assert len(joined(fn, HALF, HALF, longest=SIZE)) == 1
    assert (
        joined(fn, HALF, HALF, longest=SIZE - 1) == [("float32", (4, SIZE, SIZE))] * 2
    )


def test_scores_that_are_masked_twice_count_as_equal():
    def fn(q, k, mask):
        return jax.nn.softmax(of_scaled(q, k, None), where=mask) * 2.0

    def of_two(q, k, mask):
        one, other = of_scaled(q, k, None), jnp.where(mask, of_scaled(q, k, None), 0.0)
        return jnp.exp(one - other.max(-1, keepdims=True)) * 2.0

    assert len(joined(fn, HALF, HALF, MASK)) == 1
    assert not joined(of_two, HALF, HALF, MASK)


@pytest.mark.parametrize(
    ("sequences", "groups", "found"), [(2, 2, 1), (1, 2, 0), (2, 1, 0)]
)
def test_grouped_query_scores_are_fused_only_in_forward_passes(
    sequences, groups, found
):
    def fn(q, k, v):
        scores = jnp.einsum("bqkgh,bskh->bkgqs", q, k).astype(jnp.float32) * 0.125
        weights = jax.nn.softmax(scores).astype(jnp.bfloat16)
        return jnp.einsum("bkgqs,bskh->bqkgh", weights, v)

    def derived(q, k, v, ct):
        return jax.vjp(fn, q, k, v)[1](ct)

    q = jax.ShapeDtypeStruct((sequences, 256, 4, groups, 64), jnp.bfloat16)
    k = jax.ShapeDtypeStruct((sequences, 256, 4, 64), jnp.bfloat16)
    assert len(joined(fn, q, k, k)) == found
    assert not joined(derived, q, k, k, q)


def test_scores_are_visited_once_however_many_paths_lead_to_them():
    """Each of 40 steps reads the one before twice: 2 to the 40 paths."""

    def fn(q, k):
        scores = of_scaled(q, k, None)
        for _ in range(40):
            scores = scores * scores + scores
        return jax.nn.softmax(scores) * 2.0

    assert len(joined(fn, HALF, HALF)) == 1


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: jnp.max(x[0, 0]),
        lambda x: jax.nn.softmax(x.astype(jnp.float32) * 2.0, (0, 1)),
        lambda x: jax.nn.softmax(x * 2.0),
        lambda x: lax.reduce_max_p.bind(2.0, axes=(), out_sharding=None) + x,
        lambda x: jax.nn.softmax(x[:0].astype(jnp.float32) * 2.0, 0),
    ],
)
def test_a_maximum_of_anything_but_rows_of_a_product_is_not_fused(fn):
    square = jax.ShapeDtypeStruct((64, 64), jnp.bfloat16)
    assert not joined(lambda x: fn(x @ x), square)


@pytest.mark.parametrize("scale", [None, 0.5])
@pytest.mark.parametrize("shape", [(32, 16, 64), (512, 4, 16), (64, 8, 8, 8)])
def test_the_row_of_a_reshaped_product_is_that_of_the_softmax(shape, scale):
    """Multi-head logits are a reshaped product; their rows are not the product's."""

    def step(h, w):
        logits = (h @ w).reshape(shape).astype(jnp.float32)
        return jax.nn.softmax(logits if scale is None else logits * scale, -1)

    h = jax.ShapeDtypeStruct((512, 128), jnp.bfloat16)
    w = jax.ShapeDtypeStruct((128, 64), jnp.bfloat16)
    flow = dataflow_of(capture(step, (h, w)).program, Layouts())
    assert [_row(op) for op in flow.kinds if op.kind == "reduce_max"] == [shape[-1]]
    assert SoftmaxFusion(2560)(flow).stored >= flow.stored
    plan = mw.partition(step, {"data": 4}).plan(h, w)
    assert all(plan.on(f"tpu-{chip}").step_time_s > 0 for chip in TPUS)
