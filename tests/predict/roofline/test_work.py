"""Counted operations, against closed forms and against XLA's own count."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from meshwright.predict.roofline.work import program_work
from meshwright.program.capture import capture


def f32(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def counted(fn, *args):
    return program_work(capture(fn, args).program)


def xla_flops(fn, *args):
    """XLA's count before optimisation."""
    return jax.jit(fn).lower(*args).cost_analysis()["flops"]


def conv(**options):
    """A convolution of images NHWC by kernels HWIO."""
    numbers = ("NHWC", "HWIO", "NHWC")
    return lambda x, k: lax.conv_general_dilated(
        x, k, dimension_numbers=numbers, **options
    )


IMAGES, KERNEL = f32(2, 9, 8, 6), f32(3, 3, 6, 5)

CONVOLUTIONS = {
    "valid": (conv(window_strides=(1, 1), padding="VALID"), IMAGES, KERNEL),
    "same": (conv(window_strides=(1, 1), padding="SAME"), f32(2, 9, 8, 6), f32(3, 5, 6, 5)),
    "strided": (conv(window_strides=(2, 3), padding="SAME"), IMAGES, KERNEL),
    "dilated kernel": (
        conv(window_strides=(1, 2), padding="SAME", rhs_dilation=(2, 3)),
        IMAGES, KERNEL,
    ),
    "dilated input": (
        conv(window_strides=(1, 3), padding=((2, 1), (0, 4)), lhs_dilation=(2, 2)),
        IMAGES, KERNEL,
    ),
    "negative padding": (
        conv(window_strides=(2, 1), padding=((-1, 2), (3, -2)), lhs_dilation=(1, 3)),
        IMAGES, KERNEL,
    ),
    "depthwise": (
        conv(window_strides=(1, 1), padding="SAME", feature_group_count=6),
        f32(2, 9, 8, 6), f32(3, 3, 1, 12),
    ),
    "batch groups": (
        conv(window_strides=(1, 1), padding="SAME", batch_group_count=2),
        f32(4, 9, 8, 6), f32(3, 3, 6, 10),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_a_convolution_counts_what_xla_counts(name):
    fn, *args = CONVOLUTIONS[name]
    assert counted(fn, *args).flops == xla_flops(fn, *args)


@pytest.mark.parametrize("name", ["strided", "dilated kernel", "depthwise"])
def test_the_gradient_of_a_convolution_counts_what_xla_counts(name):
    fn, *args = CONVOLUTIONS[name]
    gradient = jax.grad(lambda x, k: fn(x, k).sum(), argnums=(0, 1))
    ours, theirs = counted(gradient, *args).flops, xla_flops(gradient, *args)
    assert ours == pytest.approx(theirs, rel=0.02)


PROGRAMS = {
    "matmul": (jnp.matmul, f32(3, 4, 5), f32(3, 5, 7)),
    "einsum over two": (
        lambda a, b: jnp.einsum("abc,cbd->ad", a, b), f32(3, 4, 5), f32(5, 4, 6),
    ),
    "elementwise": (lambda a, b: (a + b) * a - 2.0, f32(8, 6), f32(8, 6)),
    "sum": (lambda a: a.sum(1), f32(8, 6)),
    "max": (lambda a: a.max(), f32(8, 6)),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_plain_programs_count_what_xla_counts(name):
    fn, *args = PROGRAMS[name]
    assert counted(fn, *args).flops == xla_flops(fn, *args)


def test_transcendentals_are_counted_apart():
    work = counted(lambda x: jnp.exp(x) + 1, f32(8, 6))
    assert (work.flops, work.transcendentals) == (48, 48)


def test_moving_data_counts_nothing():
    work = counted(lambda x: x.T.reshape(-1)[::2], f32(8, 6))
    assert (work.flops, work.transcendentals) == (0, 0)


def test_a_scan_counts_its_body_times_its_length():
    def loop(x, w):
        return lax.scan(lambda c, _: (c @ w, None), x, length=5)[0]

    assert counted(loop, f32(3, 4), f32(4, 4)).flops == 5 * 2 * 3 * 4 * 4


def test_a_cond_counts_its_dearer_branch():
    def either(p, x):
        return lax.cond(p, lambda x: x @ x, lambda x: x + x, x)

    flag = jax.ShapeDtypeStruct((), jnp.bool_)
    assert counted(either, flag, f32(4, 4)).flops == 2 * 4**3


def test_each_row_of_a_ragged_product_is_multiplied_by_one_group():
    sizes = jax.ShapeDtypeStruct((3,), jnp.int32)
    work = counted(lax.ragged_dot, f32(10, 4), f32(3, 4, 5), sizes)
    assert work.flops == 2 * 10 * 4 * 5
