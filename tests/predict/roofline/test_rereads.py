"""Rereads of tiled products: laws, and the TPU compiler's estimates of products."""

import math

import jax
import jax.numpy as jnp
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from meshwright.machine import load_machine
from meshwright.predict.roofline.kernel_time import (
    Bound,
    KernelTraffic,
    bound_times,
    kernel_time,
)
from meshwright.predict.roofline.rereads import Streams, reread_bytes
from meshwright.program.capture import capture
from meshwright.program.ops import work_of

V5E = load_machine("tpu-v5e").chip

EXTENT = st.integers(1024, 65536)


def product(rows, summed, columns):
    """The op of a 16-bit product, [rows, summed] x [summed, columns]."""
    left = jax.ShapeDtypeStruct((rows, summed), jnp.bfloat16)
    right = jax.ShapeDtypeStruct((summed, columns), jnp.bfloat16)
    return capture(jnp.matmul, (left, right)).program.ops[0]


def streams(rows, summed, columns, *, left=1, right=1, epilogue=1):
    """Streams of a 16-bit product with so many arrays for each operand and the result."""
    return Streams(
        2 * left * rows * summed, 2 * right * summed * columns, 2.0 * epilogue
    )


COMPILED = {
    # What libtpu 0.0.52 estimates for v5e, in cycles of 12,288 x 8,192 x 28,672.
    "plain": (1, 1, 1, 49_931_800),
    "left operand x * y": (2, 1, 1, 59_075_907),
    "left operand silu(x) * y * z": (3, 1, 1, 70_803_550),
    "right operand x * y": (1, 2, 1, 59_374_963),
    "result + x": (1, 1, 2, 56_097_033),
    "two results, of two arrays": (1, 1, 4, 71_506_323),
    "left operand x * y, result + z": (2, 1, 2, 72_720_252),
}


@pytest.mark.parametrize("name", COMPILED)
def test_fused_products_take_what_the_compiler_estimates(name):
    left, right, epilogue, cycles = COMPILED[name]
    rows, summed, columns = 12288, 8192, 28672
    op = product(rows, summed, columns)
    through = streams(rows, summed, columns, left=left, right=right, epilogue=epilogue)
    once = through.left + through.right + int(through.epilogue * rows * columns)
    time = kernel_time(op, work_of(op), KernelTraffic(once, 0, through), V5E)
    assert time.seconds == pytest.approx(cycles / V5E.clock_hz, rel=0.09)


@given(EXTENT, EXTENT, EXTENT, *[st.integers(1, 3)] * 3)
def test_more_arrays_never_reduce_rereads(rows, summed, columns, a, b, c):
    op = product(rows, summed, columns)
    shape = (rows, summed, columns)
    few = reread_bytes(op, streams(*shape, left=a, right=b, epilogue=c), V5E)
    assert few >= 0
    assume(few > 0)
    for change in ({"left": a + 1}, {"right": b + 1}, {"epilogue": c + 1}):
        more = streams(*shape, **{"left": a, "right": b, "epilogue": c} | change)
        assert reread_bytes(op, more, V5E) >= few * (1 - 1e-9)


@given(EXTENT, EXTENT, EXTENT)
def test_rereads_are_at_least_those_of_the_best_tiles(rows, summed, columns):
    op, through = product(rows, summed, columns), streams(rows, summed, columns)
    again = reread_bytes(op, through, V5E)
    once = through.left + through.right
    tile = V5E.window_bytes / 2 / through.tile_bytes
    assume(again > 0)
    assert again + once >= 4 * rows * summed * columns / math.sqrt(tile) * (1 - 1e-9)


def test_an_operand_that_fits_beside_the_tiles_is_read_once():
    """4,096 x 1,024 elements of 16 bits are 8 MiB, half of the memory of windows."""
    op = product(65536, 4096, 1024)
    through = streams(65536, 4096, 1024)
    assert reread_bytes(op, through, V5E) == 0
    assert reread_bytes(op, through._replace(right=through.right + 1), V5E) > 0


@given(EXTENT, EXTENT, EXTENT, st.integers(2, 64))
def test_a_batch_rereads_as_much_as_its_products_alone(rows, summed, columns, n):
    one, alone = product(rows, summed, columns), streams(rows, summed, columns)
    left = jax.ShapeDtypeStruct((n, rows, summed), jnp.bfloat16)
    right = jax.ShapeDtypeStruct((n, summed, columns), jnp.bfloat16)
    many = capture(jnp.matmul, (left, right)).program.ops[0]
    all_of_them = alone._replace(left=n * alone.left, right=n * alone.right)
    assert reread_bytes(many, all_of_them, V5E) == pytest.approx(
        n * reread_bytes(one, alone, V5E)
    )


def test_an_operand_in_scratch_memory_causes_no_rereads():
    op = product(12288, 4096, 28672)
    through = streams(12288, 4096, 28672)
    assert reread_bytes(op, through._replace(left=0), V5E) == 0


def test_a_machine_without_window_sizes_reads_once():
    op, through = product(8192, 8192, 8192), streams(8192, 8192, 8192)
    gpu = load_machine("h100").chip
    times = [
        bound_times(op, work_of(op), KernelTraffic(10**9, 0, each), gpu)[Bound.MEMORY]
        for each in (None, through)
    ]
    assert times[0] == times[1]
