"""Images that space-to-batch splits, and the ops that keep them split."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from meshwright.predict.compilers.tpu.image_splits import ImageSplits
from meshwright.predict.compilers.tpu.spatial_split import SpatialSplit
from meshwright.program.capture import capture

KERNEL = jax.ShapeDtypeStruct((3, 3, 4, 4), jnp.float32)


def images(count, size=32):
    return jax.ShapeDtypeStruct((count, size, size, 4), jnp.float32)


def conv(x, w, stride=1):
    return lax.conv_general_dilated(
        x, w, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def cuts_of(fn, *args):
    program = capture(fn, args).program
    return program, ImageSplits(program, max_batch=7)


def last_cut(fn, *args):
    program, cuts = cuts_of(fn, *args)
    return cuts.of.get(program.outputs[0])


@pytest.mark.parametrize(
    ("count", "size", "is_cut"), [(7, 32, True), (8, 32, False), (2, 8, False)]
)
def test_small_batches_of_large_images_are_split(count, size, is_cut):
    assert bool(cuts_of(conv, images(count, size), KERNEL)[1].of) is is_cut


@pytest.mark.parametrize(
    ("after", "is_cut"),
    [
        (jnp.tanh, True),
        (lambda y: y * jnp.ones((2, 1, 1, 4)), True),
        (lambda y: y + jnp.arange(32.0)[:, None], False),
        (lambda y: lax.sort(y, dimension=3), False),
        (lambda y: y.sum((1, 2)), False),
    ],
)
def test_elementwise_ops_keep_a_split_if_others_are_constant_along_space(after, is_cut):
    found = last_cut(lambda x, w: after(conv(x, w)), images(2), KERNEL)
    assert found == (SpatialSplit(0, 2, 3, 5) if is_cut else None)


def test_an_addition_takes_the_larger_parts_of_its_operands():
    def fn(x, z, w):
        first = conv(jnp.tanh(conv(x, w)), w, 2)  # parts of 5, then of 2 pixels
        return first + conv(z, w)  # of 3

    assert last_cut(fn, images(2), images(2, 16), KERNEL).extent == 3


def test_an_op_that_also_reads_whole_images_is_not_split():
    def fn(x, z, w):
        return conv(x, w) + z

    assert last_cut(fn, images(2), images(2), KERNEL) is None


def test_the_gradient_of_a_kernel_reads_one_copy_per_kernel_pixel():
    def fn(x, w):
        return jax.grad(lambda w: (conv(jnp.tanh(conv(x, w)), w) ** 2).sum())(w)

    program, cuts = cuts_of(fn, images(2), KERNEL)
    read = [cuts.read[op] for op in program.ops if op in cuts.read]
    kernels = [each for each in read if each.copies]
    assert {each.copies for each in kernels} == {3}
    assert all(None not in each.splits for each in kernels)
