"""Recomputation that makes a step faster, and what the gap of a search bounds."""

import jax
import jax.numpy as jnp
import pytest

import meshwright as mw
from meshwright.partitioner.tactics import Recompute
from tests.planner.programs import LARGE, SCANNED, shape


def gelu_step(params, x):
    """Eight scanned layers whose activation takes less time to compute than to save."""

    def layer(h, w):
        return h + jax.nn.gelu(h @ w["up"]) @ w["down"], None

    def loss(params):
        return jnp.mean(jax.lax.scan(layer, x, params)[0] ** 2)

    gradients = jax.grad(loss)(params)
    return jax.tree.map(lambda w, g: w - 0.1 * g, params, gradients)


GELU = (
    gelu_step,
    (
        {"up": shape(8, 1024, 4096), "down": shape(8, 4096, 1024)},
        shape(16384, 1024),
    ),
)

PROGRAMS = {"gelu": GELU, "scanned": SCANNED, "large": LARGE}


@pytest.mark.parametrize("name", PROGRAMS)
def test_less_memory_gives_no_faster_plan(name):
    """The gap bounds all that the same search finds within less memory."""
    fn, args = PROGRAMS[name]
    free = mw.autoplan(fn, args, machine="tpu-v5p", chips=8)
    memory = int(0.7 * free.peak_memory_bytes)
    tight = mw.autoplan(fn, args, machine="tpu-v5p", chips=8, memory=memory)
    assert tight.peak_memory_bytes <= memory
    assert tight.step_time_s >= free.step_time_s * (1 - free.search.gap) * (1 - 1e-9)
    assert str(free.mesh) in free.search.bounded
    assert "recompute" in free.search.bounded


def test_values_are_recomputed_if_saving_them_takes_longer():
    fn, args = GELU
    plan = mw.autoplan(fn, args, machine="tpu-v5p", chips=8)
    assert any(isinstance(tactic, Recompute) for tactic in plan.tactics)
    saved = [
        each
        for each in plan.search.candidates
        if each.fits and not any(isinstance(t, Recompute) for t in each.tactics)
    ]
    fastest = min(saved, key=lambda each: each.step_time_s)
    assert plan.step_time_s < 0.95 * fastest.step_time_s
    assert plan.peak_memory_bytes < fastest.peak_memory_bytes
    assert plan.search.bounded.endswith("recompute what this plan does")
