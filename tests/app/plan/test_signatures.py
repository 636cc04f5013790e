"""When a partitioned function is traced anew, and when not."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np

import meshwright as mw


def doubling():
    def double(x):
        return x * np.float64(2)

    return mw.partition(double, {"data": 4}, [mw.shard({"x": 0}, "data")])


def test_a_call_imports_neither_search_nor_simulation():
    """They take longer to import than a small program takes to compile."""
    script = (
        "import sys, numpy, meshwright as mw\n"
        "step = mw.partition(lambda x: x + 1, {'data': 1}, [mw.shard({'x': 0}, 'data')])\n"
        "assert step(numpy.ones(4)).sum() == 8\n"
        "heavy = {'numba', 'scipy', 'ortools', 'rich', 'meshwright.planner',\n"
        "    'meshwright.search', 'meshwright.app.plan', 'meshwright.predict.estimate'}\n"
        "assert not heavy & {*sys.modules}, heavy & {*sys.modules}"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)


def test_a_change_of_jax_configuration_is_traced_anew():
    step = doubling()
    assert step(np.ones(8, np.float64)).dtype == jnp.float32
    with jax.enable_x64(True):
        assert step(np.ones(8, np.float64)).dtype == jnp.float64
    assert step(np.ones(8, np.float64)).dtype == jnp.float32


def test_the_matmul_precision_is_that_of_the_call():
    def product(x, w):
        return x @ w

    step = mw.partition(product, {"data": 4}, [mw.shard({"x": 0}, "data")])
    args = np.ones((8, 8), np.float32), np.ones((8, 8), np.float32)

    def precisions():
        return step.jitted(*args).lower(*args).as_text()

    assert "HIGHEST" not in precisions()
    with jax.default_matmul_precision("highest"):
        assert "HIGHEST" in precisions()
