"""Attention by a kernel, interpreted: the numbers of plain attention, cut and whole."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel

import meshwright as mw
from zoo import attention
from zoo.attention import attend, attend_in_blocks, attend_in_kernel, causal_mask

BATCH, SEQUENCE, HEADS, WIDTH = 2, 256, 2, 128


@pytest.fixture(autouse=True)
def interpreted(monkeypatch):
    """Runs the kernel without a TPU."""
    make = partial(splash_attention_kernel.make_splash_mha, interpret=True)
    kernels = attention.splash_attention_kernel
    monkeypatch.setattr(kernels, "make_splash_mha", make)


def heads(key, count=HEADS):
    return jax.random.normal(jax.random.key(key), (BATCH, SEQUENCE, count, WIDTH))


def outputs_and_gradients(attend):
    """Of a function of q, k and v, with its output's sum of squares as the loss."""

    def loss(q, k, v):
        heard = attend(q, k, v)
        return (heard**2).sum(), heard

    return jax.value_and_grad(loss, (0, 1, 2), has_aux=True)


@pytest.mark.parametrize("kv_heads", [2, 1])
def test_attention_by_a_kernel_is_attention(kv_heads):
    args = heads(0), heads(1, kv_heads), heads(2, kv_heads)
    mask = causal_mask(jnp.arange(SEQUENCE), SEQUENCE)
    plain = outputs_and_gradients(lambda q, k, v: attend(q, k, v, mask))(*args)
    kernel = outputs_and_gradients(partial(attend_in_kernel, block=128))(*args)
    same = partial(np.testing.assert_allclose, rtol=2e-3, atol=2e-3)
    jax.tree.map(same, kernel, plain)


def test_a_short_sequence_is_attended_at_once():
    q, k, v = (heads(i)[:, :9] for i in range(3))
    found = attend_in_kernel(q, k, v, block=128)
    np.testing.assert_array_equal(found, attend_in_blocks(q, k, v, block=128))


def test_batch_and_heads_are_cut_without_a_collective():
    fn = outputs_and_gradients(partial(attend_in_kernel, block=128))
    args = heads(0), heads(1), heads(2)
    tactics = [
        mw.shard({"q": 0, "k": 0, "v": 0}, "data"),
        mw.shard({"q": 2, "k": 2, "v": 2}, "model"),
    ]
    step = mw.partition(fn, {"data": 2, "model": 2}, tactics)
    plan = step.plan(*args)
    assert {c.kind for c in plan.collectives} == {"all_reduce"}  # of the loss
    assert step.check(*args).ok
