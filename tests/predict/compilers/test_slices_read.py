"""Bytes that kernels read of sliced arrays, as the TPU compiler counts them.

The compiler is libtpu 0.0.50.1 for v5e; the bytes are those of `cost_analysis()`.
"""

import jax
import jax.numpy as jnp
import pytest

import meshwright as mw
from meshwright.predict.compilers.model.compilation import compile_program
from meshwright.predict.compilers.tpu.tpu_passes import TPU
from meshwright.predict.compilers.xla.multi_output_fusion import kernels_of

MIB = 2**20


def ends(x):
    """The first and the last quarter of the rows."""
    return jnp.sum(x[:1024] * 2, 0), jnp.sum(jnp.tanh(x[3072:]), 0)


def column(x):
    return jnp.exp(x[:, 512:1024])


def gated(x):
    """Two of four parts of the columns."""
    return jnp.tanh(x[:, :2048]) * x[:, 4096:6144]


COMPILED = {
    ends: ((4096, 4096), 32.03),
    gated: ((4096, 8192), 96.0),
    column: ((4096, 4096), 16.0),
}


@pytest.mark.parametrize("fn", COMPILED)
def test_kernels_read_the_slices_that_the_tpu_compiler_reads(fn):
    shape, mib = COMPILED[fn]
    x = jax.ShapeDtypeStruct(shape, jnp.float32)
    program = mw.partition(fn, {"a": 1}).decide(x).lowered.program
    done = compile_program(program, TPU, (8, 128))
    kernels = kernels_of(program, done.layouts, done.fusions).kernels
    assert sum(each.num_bytes for each in kernels) / MIB == pytest.approx(mib, 1e-3)
