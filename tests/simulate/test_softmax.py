"""What a softmax of 16-bit scores leaves in memory, as XLA compiles it for TPUs."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from meshwright.capture import capture
from meshwright.machine import load_machine
from meshwright.simulate.fusion import fuse
from meshwright.simulate.layout import Layout
from meshwright.simulate.narrow import narrow_values
from meshwright.simulate.rules import PLAIN, rules_for
from meshwright.simulate.unit import Kind

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


def of_transposed(q, k, mask):
    return jnp.swapaxes(product(k, q).astype(jnp.float32), 1, 2) * 0.125


def written(scores, rules, way_back=True):
    """Dtypes of what is written of all scores, in order; nothing of it is handed out."""

    def heard(q, k, v, mask):
        weights = jax.nn.softmax(scores(q, k, mask), -1).astype(jnp.bfloat16)
        return jnp.einsum("bqk,bkh->bqh", weights, v)

    def step(q, k, v, mask, ct):
        out, vjp = jax.vjp(lambda *qkv: heard(*qkv, mask), q, k, v)
        return (out, *vjp(ct)) if way_back else out

    program = capture(step, (HALF, HALF, HALF, MASK, HALF)).program
    units = fuse(program, Layout(narrow=narrow_values(program)), rules)
    size = (4, SIZE, SIZE)
    return [v.dtype for unit in units for v in unit.writes if v.shape == size]


CHIPS = [rules_for(load_machine(f"tpu-{chip}", 1)) for chip in ("v4", "v5e", "v5p")]


@pytest.mark.parametrize("rules", CHIPS)
@pytest.mark.parametrize("scores", [of_scaled, of_masked])
def test_exponentials_are_stored_instead_of_scores(scores, rules):
    """And the weights, and the gradients of both, as in dumps of libtpu 0.0.50."""
    assert written(scores, rules) == ["float32", "bfloat16", "bfloat16", "bfloat16"]


def test_weights_are_computed_again_where_the_vector_unit_is_fast():
    rules = rules_for(load_machine("tpu-v6e", 1))
    assert written(of_scaled, rules) == ["float32", "bfloat16", "bfloat16"]


@pytest.mark.parametrize("rules", CHIPS)
def test_scores_that_are_only_widened_stay_as_they_are(rules):
    assert written(of_widened, rules) == ["bfloat16"] * 4


def test_transposed_scores_and_those_of_other_compilers_stay_as_they_are():
    assert written(of_transposed, CHIPS[0], way_back=False)[0] == "bfloat16"
    assert written(of_scaled, PLAIN, way_back=False)[0] == "bfloat16"


def test_a_vocabulary_is_no_row_of_scores():
    def loss(x, w):
        logits = (x @ w).astype(jnp.float32) * 2.0
        return jax.nn.softmax(logits, -1) @ jnp.ones((16_384, 1))

    x = jax.ShapeDtypeStruct((64, 32), jnp.bfloat16)
    w = jax.ShapeDtypeStruct((32, 16_384), jnp.bfloat16)
    units = fuse(capture(loss, (x, w)).program, Layout(), CHIPS[0])
    wide = [v.dtype for u in units for v in u.writes if v.shape == (64, 16_384)]
    assert wide[0] == "bfloat16"


def test_a_widened_value_is_stored_for_who_needs_it_so_and_read_in_fewer_bits():
    def fn(x, w, i):
        scores = (x @ w).astype(jnp.float32)
        chosen = jnp.take_along_axis(scores, i[:, None], -1)
        return chosen, scores.max(-1), jnp.exp(scores).sum(-1)

    x = jax.ShapeDtypeStruct((64, 32), jnp.bfloat16)
    w = jax.ShapeDtypeStruct((32, 4096), jnp.bfloat16)
    i = jax.ShapeDtypeStruct((64,), jnp.int32)
    units = fuse(capture(fn, (x, w, i)).program, Layout(), CHIPS[0])
    made = {v: v.dtype for u in units for v in u.writes if v.shape == (64, 4096)}
    assert sorted(made.values()) == ["bfloat16", "float32"]
    for unit in units:
        dtypes = [made[v] for v in unit.reads if v in made]
        if unit.root.kind in ("reduce_max", "reduce_sum"):
            assert dtypes == ["bfloat16"]
        if unit.root.kind == "gather":
            assert dtypes == ["float32"]


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: jnp.max(x[0, 0]),
        lambda x: jax.nn.softmax(x.astype(jnp.float32) * 2.0, 0),
        lambda x: jax.nn.softmax(x.astype(jnp.float32) * 2.0, (0, 1)),
        lambda x: lax.reduce_max_p.bind(2.0, axes=(), out_sharding=None) + x,
        lambda x: jax.nn.softmax(x[:0].astype(jnp.float32) * 2.0),
    ],
)
def test_the_largest_of_anything_but_rows_of_scores_is_taken_as_it_stands(fn):
    square = jax.ShapeDtypeStruct((64, 64), jnp.bfloat16)
    program = capture(lambda x: fn(x @ x), (square,)).program
    for unit in fuse(program, Layout(), CHIPS[0]):
        assert unit.kind is not Kind.LOOP or unit.root.kind != "reduce_max"
