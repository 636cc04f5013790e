"""Memory of single attention layers, compared with the real TPU compiler's."""

import importlib.util

import jax
import jax.numpy as jnp
import pytest
from jax.experimental.pallas.ops.tpu.flash_attention import flash_attention
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel
from jax.experimental.pallas.ops.tpu.splash_attention import (
    splash_attention_mask as masks,
)

import meshwright as mw

LENGTH = 2048


def scores(q, k, v):
    s = jnp.einsum("bqhk,bshk->bhqs", q, k).astype(jnp.float32) / 8
    s = jnp.where(jnp.tril(jnp.ones((LENGTH, LENGTH), bool)), s, -1e9)
    return jnp.einsum("bhqs,bshk->bqhk", jax.nn.softmax(s).astype(q.dtype), v)


def flash(q, k, v):
    q, k, v = (a.swapaxes(1, 2) for a in (q, k, v))
    return flash_attention(q, k, v, causal=True, sm_scale=0.125).swapaxes(1, 2)


def splash(q, k, v):
    q, k, v = (a.swapaxes(1, 2) for a in (q, k, v))
    mask = masks.MultiHeadMask([masks.CausalMask((LENGTH, LENGTH))] * q.shape[1])
    kernel = splash_attention_kernel.make_splash_mha(
        mask, head_shards=1, q_seq_shards=1
    )
    return jax.vmap(kernel)(q, k, v).swapaxes(1, 2)


def layer(attention):
    def loss(w, x):
        q, k, v = (jnp.einsum("btd,dhe->bthe", x, w[n]) for n in "qkv")
        y = jnp.einsum("bthe,hed->btd", attention(q, k, v), w["o"])
        return (y.astype(jnp.float32) ** 2).mean()

    return jax.value_and_grad(loss, argnums=(0, 1))


MESHES = {
    "heads": (
        {"a": 4, "b": 2},
        (
            mw.shard({"x": 0}, "a"),
            mw.shard({"w.q": 1, "w.k": 1, "w.v": 1, "w.o": 0}, "b"),
        ),
    ),
    "fsdp": ({"a": 8}, (mw.data_parallel("a", "x"), mw.fsdp("a"))),
}


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None, reason="needs meshwright[tpu]"
)
@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("attention", [scores, flash, splash])
def test_memory_of_one_layer_is_that_of_the_compiler(attention, mesh):
    def shaped(*shape):
        return jax.ShapeDtypeStruct(shape, jnp.bfloat16)

    sizes, tactics = MESHES[mesh]
    weights = {n: shaped(2048, 16, 128) for n in "qkv"} | {"o": shaped(16, 128, 2048)}
    step = mw.partition(layer(attention), sizes, tactics)
    plan = step.plan(weights, shaped(16, LENGTH, 2048)).on("tpu-v5e")
    told = plan.confirm("tpu")
    error = told.predicted.peak_bytes / told.compiled.peak_bytes - 1
    assert abs(error) < 0.15, f"{error:+.1%}"
