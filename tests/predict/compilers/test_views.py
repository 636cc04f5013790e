"""Random views between a product, a softmax and a loss: every such step is simulated."""

import math

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import meshwright as mw
from meshwright.predict.compilers.model.dataflow import dataflow_of
from meshwright.predict.compilers.model.tiled_layouts import Layouts
from meshwright.predict.compilers.tpu.softmax_fusion import SoftmaxFusion
from meshwright.program.capture import capture

VIEWS = {
    "split": lambda x, d: x.reshape(*x.shape[:d], 2, -1, *x.shape[d + 1 :]),
    "join": lambda x, d: x.reshape(*x.shape[:d], -1, *x.shape[d + 2 :]),
    "swap": lambda x, d: jnp.swapaxes(x, d, -1),
    "move": lambda x, d: jnp.moveaxis(x, 0, d),
    "widen": lambda x, d: x.astype(jnp.float32),
    "narrow": lambda x, d: x.astype(jnp.bfloat16),
    "scale": lambda x, d: x * 0.5,
    "expand": lambda x, d: jnp.expand_dims(x, d),
}
CHAIN = st.lists(
    st.tuples(st.sampled_from(sorted(VIEWS)), st.integers(0, 3)), max_size=3
)
H = jax.ShapeDtypeStruct((256, 64), jnp.bfloat16)
W = jax.ShapeDtypeStruct((64, 512), jnp.bfloat16)


def viewed(x, chain):
    for name, dim in chain:
        dim = dim % x.ndim
        if name == "split" and x.shape[dim] % 2:
            continue
        x = VIEWS[name](x, dim)
    return x


@pytest.mark.parametrize("machine", ["tpu-v4", "tpu-v5e", "h100"])
@settings(max_examples=12, deadline=None, derandomize=True)
@given(before=CHAIN, after=CHAIN, axis=st.integers(0, 3))
def test_views_between_product_softmax_and_loss_are_simulated(
    machine, before, after, axis
):
    def loss(w, h):
        logits = viewed(h @ w, before)
        weights = jax.nn.softmax(logits, axis % logits.ndim)
        return jnp.mean(viewed(weights, after).astype(jnp.float32) ** 2)

    def step(w, h):
        value, gradient = jax.value_and_grad(loss)(w, h)
        return w - gradient, value

    flow = dataflow_of(capture(step, (W, H)).program, Layouts())
    assert SoftmaxFusion(2560)(flow).stored >= flow.stored
    plan = mw.partition(step, {"data": 4}, [mw.shard({"h": 0}, "data")]).plan(W, H)
    placed = plan.on(machine)
    assert 0 < placed.step_time_s < math.inf
    kernels = {f.root.kind for f in placed.estimate.fusions}
    assert "dot_general" in kernels
