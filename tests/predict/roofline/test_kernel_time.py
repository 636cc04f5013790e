"""Seconds of single kernels: which bound holds, and laws of all bounds."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax

from meshwright.machine import Curve, load_machine
from meshwright.predict.roofline.kernel_time import Bound, KernelTraffic, kernel_time
from meshwright.predict.roofline.matrix_unit import padded_flops
from meshwright.program.capture import capture
from meshwright.program.ops import OpWork, work_of

CHIP = replace(load_machine("tpu-v5e").chip, efficiency={})
"""A chip that reaches all its peaks."""


def product(rows, summed, columns, dtype=jnp.bfloat16):
    """The op of a product [rows, summed] x [summed, columns]."""
    args = (
        jax.ShapeDtypeStruct((rows, summed), dtype),
        jax.ShapeDtypeStruct((summed, columns), dtype),
    )
    return capture(jnp.matmul, args).program.ops[0]


def test_a_large_product_is_bound_by_the_matrix_unit():
    op = product(8192, 8192, 8192)
    time = kernel_time(op, work_of(op), KernelTraffic(3 * 2 * 8192**2), CHIP)
    assert time.bound is Bound.MATRIX
    assert time.seconds == pytest.approx(2 * 8192**3 / 197e12)


def test_a_thin_product_is_bound_by_memory():
    op = product(8, 8192, 8192)
    num_bytes = 2 * (8 * 8192 * 2 + 8192**2)
    time = kernel_time(op, work_of(op), KernelTraffic(num_bytes), CHIP)
    assert time.bound is Bound.MEMORY
    assert time.seconds == pytest.approx(num_bytes / 819e9)


def test_a_reduction_has_a_share_of_memory_of_its_own():
    """Where the machine states it; else that of other kernels."""
    args = (jax.ShapeDtypeStruct((8192, 8192), jnp.bfloat16),)
    op = capture(lambda x: lax.reduce_max(x, (1,)), args).program.ops[0]
    once = KernelTraffic(2 * 8192**2)
    half, fifth = (Curve(((1.0, share),)) for share in (0.5, 0.2))
    for stated, share in (({}, 0.5), ({"reduction": fifth}, 0.2)):
        chip = replace(CHIP, efficiency={"memory": half, **stated})
        seconds = kernel_time(op, OpWork(0, 0), once, chip).seconds
        assert seconds == pytest.approx(once.num_bytes / 819e9 / share)


def test_a_tiny_kernel_takes_its_launch():
    op = product(8, 8, 8)
    time = kernel_time(op, work_of(op), KernelTraffic(400), CHIP)
    assert (time.bound, time.seconds) == (Bound.LAUNCH, CHIP.launch_s)


def test_small_dims_are_padded_to_the_matrix_unit():
    """A unit of 128 columns takes as long for 64 columns, or 3 channels, as for 128."""
    assert padded_flops(product(1024, 1024, 64), CHIP) == padded_flops(
        product(1024, 1024, 128), CHIP
    )
    image = jax.ShapeDtypeStruct((8, 32, 32, 128), jnp.bfloat16)

    def conv(outputs):
        kernel = jax.ShapeDtypeStruct((3, 3, 128, outputs), jnp.bfloat16)
        args = (image, kernel)
        return capture(
            lambda x, k: jax.lax.conv_general_dilated(
                x, k, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
            ),
            args,
        ).program.ops[0]

    assert padded_flops(conv(3), CHIP) == pytest.approx(padded_flops(conv(128), CHIP))


@given(*[st.integers(1, 300)] * 3)
def test_padding_never_removes_operations(rows, summed, columns):
    op = product(rows, summed, columns)
    assert padded_flops(op, CHIP) >= work_of(op).flops


@given(st.integers(0, 10**12), st.integers(0, 10**9), st.floats(0, 1e12))
def test_more_work_is_never_faster(flops, transcendentals, num_bytes):
    op = capture(jnp.tanh, (jax.ShapeDtypeStruct((8,), jnp.float32),)).program.ops[0]
    work = OpWork(flops, transcendentals)
    once = kernel_time(op, work, KernelTraffic(num_bytes), CHIP).seconds
    twice = kernel_time(op, work + work, KernelTraffic(2 * num_bytes), CHIP).seconds
    assert twice >= once >= CHIP.launch_s


def test_an_efficiency_curve_goes_through_its_points_and_is_flat_outside():
    curve = Curve(((1e6, 0.2), (1e9, 0.8)))
    assert [curve.share(x) for x in (1e3, 1e6, 1e9, 1e12)] == [0.2, 0.2, 0.8, 0.8]
    assert curve.share(10**7.5) == pytest.approx(0.5)
