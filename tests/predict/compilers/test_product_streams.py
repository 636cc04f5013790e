"""Operands that stream through a product, by the side that needs them."""

import jax
import jax.numpy as jnp
import pytest

from meshwright.predict.compilers.model.fusion import FusionKind
from meshwright.predict.compilers.model.kernels import streamed_operands
from meshwright.predict.compilers.model.tiled_layouts import Layouts
from meshwright.program.capture import capture
from tests.predict.compilers.compiled import fused, fusions_of

X = jax.ShapeDtypeStruct((512, 256), jnp.bfloat16)
W = jax.ShapeDtypeStruct((256, 1024), jnp.bfloat16)
Y = jax.ShapeDtypeStruct((512, 1024), jnp.bfloat16)
V = jax.ShapeDtypeStruct((256, 512), jnp.bfloat16)
STACK = jax.ShapeDtypeStruct((12, 256, 1024), jnp.bfloat16)
INDEX = jax.ShapeDtypeStruct((), jnp.int32)
LEFT, RIGHT = 2 * 512 * 256, 2 * 256 * 1024

CASES = {
    "plain": (lambda x, w: x @ w, (X, W), (LEFT, RIGHT, 2)),
    "left of two": (lambda x, g, w: (x * g) @ w, (X, X, W), (2 * LEFT, RIGHT, 2)),
    "right of two": (lambda x, w, v: x @ (w * v), (X, W, W), (LEFT, 2 * RIGHT, 2)),
    "sum beside": (lambda x, w, y: x @ w + y, (X, W, Y), (LEFT, RIGHT, 4)),
    "vector beside": (lambda x, w, b: x @ w + b, (X, W, Y.update(shape=(1024,))),
                      (LEFT, RIGHT, 2)),
    "one array on both sides": (lambda x: x.T @ x, (X,), (LEFT, LEFT, 2)),
    "two in another shape": (lambda x, w: x.reshape(512, 256) @ w.reshape(256, 512),
                             (X.update(shape=(256, 512)), X), (LEFT, LEFT, 2)),
    "in thirds": (lambda x, *w: x @ jnp.concatenate(w, 1), (X, V, V, V),
                  (LEFT, 3 * RIGHT // 2, 2)),
    "one of a stack": (lambda x, s, i: x @ s[i], (X, STACK, INDEX), (LEFT, RIGHT + 4, 2)),
    "what only repeats": (lambda x, b: (x + b) @ jnp.ones((256, 1024), x.dtype),
                          (X, X.update(shape=(256,))), (LEFT + 512, 0, 2)),
}  # fmt: skip


def streams(fn, args, on_chip=()):
    program = capture(fn, args).program
    (fusion,) = (u for u in fusions_of(program) if u.kind is FusionKind.PRODUCT)
    kept = [program.inputs[index] for index in on_chip]
    sides = streamed_operands(fusion, Layouts())
    return sides and sides.outside(kept)


@pytest.mark.parametrize("name", CASES)
def test_an_array_belongs_to_the_side_that_is_computed_from_it(name):
    fn, args, wanted = CASES[name]
    found = streams(fn, args)
    assert (found.left, found.right, found.epilogue) == wanted
    assert not found.has_sums


def test_operands_in_scratch_memory_do_not_stream():
    fn, args, _ = CASES["plain"]
    assert streams(fn, args, on_chip=(0,)).left == 0


def test_a_value_that_a_kernel_keeps_in_scratch_memory_does_not_stream():
    program = capture(lambda x, w: jnp.tanh(x @ w) @ w.T, (X, W)).program
    last = fused(program).kernels.kernels[-1]
    (made,) = (v for v in last.fusion.reads if v not in program.inputs)
    outside, inside = (last.traffic(kept) for kept in ((), {made}))
    assert (
        outside.streams.left == outside.num_bytes - inside.num_bytes == 2 * 512 * 1024
    )
    assert inside.streams.left == 0
    assert inside.streams.right == outside.streams.right == RIGHT


def test_a_result_in_32_bits_needs_no_buffer_for_sums():
    wide = [arg.update(dtype=jnp.float32) for arg in (X, W)]
    found = streams(lambda x, w: x @ w, wide)
    assert found.has_sums
    assert found.tile_bytes == 8


def test_a_convolution_has_no_streams():
    image = jax.ShapeDtypeStruct((8, 32, 32, 128), jnp.bfloat16)
    kernel = jax.ShapeDtypeStruct((3, 3, 128, 128), jnp.bfloat16)

    def convolved(x, k):
        numbers = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(
            x, k, (1, 1), "SAME", dimension_numbers=numbers
        )

    assert streams(convolved, (image, kernel)) is None
