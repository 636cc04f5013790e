"""Fusion runs once per program and compiler; earlier estimates do not change later ones."""

import jax
import jax.numpy as jnp
import pytest

import meshwright as mw
from meshwright.machine import load_machine
from meshwright.predict import estimate as estimating
from meshwright.predict.estimate import estimate


def decided():
    def step(w, x):
        def layer(x, w):
            return jnp.tanh(x @ w), None

        x, _ = jax.lax.scan(layer, jnp.sin(x), w)
        return (x @ w[0]).sum()

    w = jax.ShapeDtypeStruct((3, 512, 512), jnp.bfloat16)
    x = jax.ShapeDtypeStruct((1024, 512), jnp.bfloat16)
    tactics = [mw.data_parallel("data", "x"), mw.shard({"w": 1}, axis="data")]
    return mw.partition(step, {"data": 8}, tactics).decide(w, x)


def figures(found):
    return (
        found.step_time_s,
        found.memory.curve,
        found.breakdown,
        [(s.stream, s.start_s, s.end_s, s.num_bytes) for s in found.timeline.spans],
    )


def test_machines_with_the_same_compiler_share_the_fusions(monkeypatch):
    calls = []

    def counted(*args):
        calls.append(args)
        return forming(*args)

    forming = estimating.compile_program
    monkeypatch.setattr(estimating, "compile_program", counted)
    made = decided()
    for name in ("tpu-v5e", "tpu-v5p", "tpu-v5e", "h100", "a100-40g"):
        estimate(made, load_machine(name, 8))
    compilers = {compiler for _, compiler, _ in calls}
    assert len(calls) == len(compilers) == 3
    estimate(decided(), load_machine("tpu-v5e", 8))
    assert len(calls) == 4


@pytest.mark.parametrize("name", ["tpu-v5e", "tpu-v5p", "h100", "cpu"])
def test_the_estimate_of_a_machine_does_not_depend_on_earlier_estimates(name):
    made = decided()
    for other in ("tpu-v6e", "h100", "cpu", "tpu-v5p"):
        estimate(made, load_machine(other, 8), donate_state=True)
    alone = estimate(decided(), load_machine(name, 8))
    assert figures(estimate(made, load_machine(name, 8))) == figures(alone)
