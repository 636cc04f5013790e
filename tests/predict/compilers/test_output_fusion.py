"""Products that write their result into a part of an array."""

import jax
import jax.numpy as jnp
import pytest

from meshwright.predict.compilers.gpu.gpu_passes import GPU
from meshwright.predict.compilers.model.fusion import FusionKind
from meshwright.predict.compilers.model.kernels import accessed_values
from meshwright.predict.compilers.tpu.tpu_passes import TPU
from meshwright.program.capture import capture
from meshwright.program.ir import num_bytes
from tests.predict.compilers.compiled import fusions_of

X = jax.ShapeDtypeStruct((512, 256), jnp.bfloat16)
W = jax.ShapeDtypeStruct((256, 1024), jnp.bfloat16)


def put_together(x, w):
    """The products of two parts of `x`, as in a loop that gathers them."""
    whole = jnp.zeros((1024, 1024), x.dtype)
    whole = jax.lax.dynamic_update_slice(whole, x @ w, (0, 0))
    return jax.lax.dynamic_update_slice(whole, (x * 2) @ w, (512, 0))


def products(compiler):
    found = fusions_of(capture(put_together, (X, W)).program, compiler)
    return [fusion for fusion in found if fusion.kind is FusionKind.PRODUCT]


def test_a_tpu_writes_a_product_into_the_array_without_a_copy():
    last = products(TPU)[-1]
    assert last.in_place is not None
    assert [v.shape for v in last.writes] == [(1024, 1024)]
    moved = 2 * (512 * 256 + 256 * 1024 + 512 * 1024)
    assert sum(map(num_bytes, accessed_values(last))) == pytest.approx(moved, abs=16)


def test_a_gpu_copies_a_product_into_the_array():
    shapes = [v.shape for product in products(GPU) for v in product.writes]
    assert shapes == [(512, 1024)] * 2
