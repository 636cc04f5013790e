"""The real TPU compiler: what is read off its output, and how it is missed."""

import importlib.util

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import meshwright as mw
from meshwright.errors import CompilerError
from meshwright.machine import load_machine
from meshwright.runtime.confirm import Step, confirm


def small_step():
    def step(w, x):
        return w - 0.1 * jax.grad(lambda w: jnp.sum(jnp.tanh(x @ w) ** 2))(w)

    args = (
        jax.ShapeDtypeStruct((256, 512), jnp.float32),
        jax.ShapeDtypeStruct((1024, 256), jnp.float32),
    )
    partitioned = mw.partition(
        step, {"data": 4, "model": 2}, [mw.data_parallel("data", "x")]
    )
    decided = partitioned.plan(*args).decided
    return Step(decided.lowered, decided.captured.avals)


def test_a_machine_without_such_a_compiler_is_refused():
    with pytest.raises(CompilerError, match="no ahead-of-time compiler for h100"):
        confirm(small_step(), load_machine("h100", 8))


def test_without_the_package_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(CompilerError, match=r"needs libtpu: pip install .*\[tpu\]"):
        confirm(small_step(), load_machine("tpu-v5e", 8))


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None, reason="needs meshwright[tpu]"
)
@pytest.mark.parametrize("full", [False, True])
def test_the_compiler_says_what_a_step_needs(full):
    compiled = confirm(small_step(), load_machine("tpu-v5e", 8), full=full)
    assert compiled.fits
    assert compiled.peak_bytes > 256 * 512 * 4
    assert "all-reduce" in compiled.hlo
    assert (compiled.cycles is not None) == full
    assert np.isfinite(compiled.compile_s)


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None, reason="needs meshwright[tpu]"
)
def test_an_axis_in_units_and_a_split_torus_compile():
    def step(x):
        return jnp.sum(x.reshape(12, 4, 8) ** 2)

    mesh = {"data": 8, "model": 2}
    partitioned = mw.partition(step, mesh, [mw.data_parallel("data", "x")])
    decided = partitioned.plan(jax.ShapeDtypeStruct((48, 8), jnp.float32)).decided
    assert len(decided.lowered.mesh.axes) > 2
    step = Step(decided.lowered, decided.captured.avals)
    assert confirm(step, load_machine("tpu-v6e", 16)).fits
