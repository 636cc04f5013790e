"""Kernels that transpose what a matrix product writes for another one, as XLA has them."""

import jax
import jax.numpy as jnp
import pytest

import meshwright as mw
from meshwright.predict.compilers.gpu.gpu_passes import GPU
from meshwright.predict.compilers.model.compilation import compile_program
from tests.predict.memory.test_buffer_assignment import program_of

B, S, N, H = 2, 64, 4, 32
SIZE = B * S * N * H * 4


def copied(fn, *shapes):
    """Bytes of the kernels that copy operands or results of products."""
    args = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    kernels = compile_program(program_of(fn, *args), GPU, (1, 1)).kernels.kernels
    return [e.num_bytes for e in kernels if e.fusion.root.kind == "copy_p"]


def heads(x, w):
    return jnp.einsum("bsd,dnh->bsnh", x, w)


def test_heads_are_brought_next_to_the_batch_once_for_all_products():
    def scores(x, w):
        q = heads(x, w)
        first = jnp.einsum("bqnh,bknh->bnqk", q, q)
        return first, jnp.einsum("bqnh,bqnd->bnhd", q, q)

    assert copied(scores, (B, S, N * H), (N * H, N, H)) == [2 * SIZE]


@pytest.mark.parametrize(("batch", "num_heads"), [(1, N), (B, 1)])
def test_dims_of_one_element_are_next_to_any_other(batch, num_heads):
    def scores(x, w):
        q = heads(x, w)
        return jnp.einsum("bqnh,bknh->bnqk", q, q)

    assert not copied(scores, (batch, S, num_heads * H), (num_heads * H, num_heads, H))


def test_a_product_behind_heads_reads_a_copy():
    def mixed(shares, values, w):
        y = jnp.einsum("bnqk,bnkh->bqnh", shares, values)
        return jnp.einsum("bqnh,nhd->bqd", y, w)

    shapes = (B, N, S, S), (B, N, S, H), (N, H, N * H)
    assert copied(mixed, *shapes) == [2 * SIZE]


def test_an_elementwise_kernel_writes_any_order():
    def scores(x, w):
        q = heads(x, w)
        wide = jnp.tanh(q), jnp.exp(q)
        return jnp.einsum("bqnh,bknh->bnqk", *wide)

    assert not copied(scores, (B, S, N * H), (N * H, N, H))


def test_a_matrix_may_be_transposed():
    assert not copied(lambda x, w: (x @ w).T @ x, (64, 32), (32, 64))


def test_attention_of_cudnn_reads_what_projections_write():
    def step(x, w):
        q = heads(x, w)
        return jax.nn.dot_product_attention(q, q, q, implementation="cudnn")

    shapes = (B, S, N * H), (N * H, N, H)
    args = [jax.ShapeDtypeStruct(shape, jnp.bfloat16) for shape in shapes]
    plan = mw.partition(step, {"d": 1}, []).plan(*args).on("h100")
    kinds = [span.fusion.root.kind for span in plan.estimate.timeline.spans]
    assert "copy_p" not in kinds
