"""Copies that images split in space need, and their layouts."""

from dataclasses import replace

import jax
import jax.numpy as jnp
from jax import lax

from meshwright.predict.compilers.model.compilation import (
    Stage,
    compile_program,
    start_compilation,
)
from meshwright.predict.compilers.model.fusion import SPACE_TO_BATCH_COPY
from meshwright.predict.compilers.model.tiled_layouts import Layouts, shape_layouts
from meshwright.predict.compilers.tpu.space_to_batch import convert_space_to_batch
from meshwright.predict.compilers.tpu.tpu_passes import TPU
from meshwright.program.capture import capture

TILE = (8, 128)


def shape(*extents):
    return jax.ShapeDtypeStruct(extents, jnp.float32)


def conv(x, w):
    return lax.conv_general_dilated(
        x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def copies_of(fn, *args):
    """Bytes of each copy in a program, in order."""
    found = compile_program(capture(fn, args).program, TPU, TILE)
    return [
        found.layouts.size(fusion.writes[0])
        for fusion in found.fusions
        if fusion.root.kind == SPACE_TO_BATCH_COPY
    ]


def test_large_batches_need_no_copies():
    def fn(x, w):
        return conv(jnp.tanh(conv(x, w)), w)

    program = capture(fn, (shape(8, 64, 64, 128), shape(3, 3, 128, 128))).program
    found = start_compilation(program, TPU, TILE).after(Stage.LAYOUTS)
    assert found.program is program
    assert not found.origins
    assert not found.layouts.physical


def test_parts_with_halos_are_written_and_whole_images_put_together():
    """64 + 2 pixels are 8 parts of 9, with a halo of 2; operands have 16 bits."""
    found = copies_of(conv, shape(2, 64, 64, 128), shape(3, 3, 128, 128))
    parts, whole = 16 * 64 * 11 * 128 * 2, 2 * 64 * 64 * 128 * 4
    assert found == [parts, whole]


def test_images_with_few_features_change_their_layout_between_convolutions():
    """Rows of 128 with 32 features are padded by three quarters, with 128 pixels not."""

    def fn(x, w):
        y = conv(x, w)
        return jnp.tanh(y) * y

    found = copies_of(fn, shape(2, 128, 64, 32), shape(3, 3, 32, 32))
    parts, made = 16 * 128 * 11 * 32 * 2, 16 * 128 * 9 * 32 * 4
    assert found == [parts, 4 * parts, made, 2 * 128 * 64 * 32 * 4]


def test_a_result_that_is_only_summed_keeps_the_convolutions_layout():
    def fn(x, w):
        return (conv(x, w) ** 2).sum((1, 2))

    program = capture(fn, (shape(2, 128, 64, 32), shape(3, 3, 32, 32))).program
    found = compile_program(program, TPU, TILE)
    sizes = {found.layouts.size(v) for fusion in found.fusions for v in fusion.writes}
    assert 16 * 128 * 9 * 128 * 4 in sizes
    assert 16 * 128 * 9 * 32 * 4 not in sizes


def test_a_broadcast_over_images_is_copied_once_for_all_consumers():
    def fn(x, w, scale):
        y = conv(x, w)
        scales = scale[:, None, None]
        return (y * scales).sum((0, 1, 2)), (y + scales).max((0, 1, 2))

    found = copies_of(fn, shape(2, 64, 64, 128), shape(3, 3, 128, 128), shape(2, 128))
    assert found == [16 * 64 * 11 * 128 * 2, 16 * 64 * 9 * 128 * 4]


def test_a_sum_for_each_image_reads_it_whole():
    def fn(x, w):
        return conv(x, w).sum((1, 2))

    parts, whole = 16 * 64 * 11 * 128 * 2, 2 * 64 * 64 * 128 * 4
    assert copies_of(fn, shape(2, 64, 64, 128), shape(3, 3, 128, 128)) == [parts, whole]


def test_loops_have_their_own_copies():
    def fn(x, w):
        return lax.scan(lambda x, _: (conv(x, w), None), x, length=3)[0]

    program = capture(fn, (shape(2, 64, 64, 128), shape(3, 3, 128, 128))).program
    found = start_compilation(program, TPU, TILE).after(Stage.LAYOUTS)
    (scan,) = found.program.ops
    assert sum(op.kind == SPACE_TO_BATCH_COPY for op in scan.bodies[0].ops) == 2
    assert found.origins[scan] is program.ops[0]


def test_a_broadcast_over_images_is_copied_once_per_shape():
    """One number per image is broadcast over 128 features and over 256."""

    def fn(x, w, v, scale):
        def scaled(y):
            return y * lax.broadcast_in_dim(scale, y.shape, (0,))

        return conv(scaled(conv(x, w)), w), conv(scaled(conv(x, v)), v.swapaxes(2, 3))

    kernels = shape(3, 3, 128, 128), shape(3, 3, 128, 256)
    program = capture(fn, (shape(2, 64, 64, 128), *kernels, shape(2))).program
    found = compile_program(program, TPU, TILE).program
    for op in found.walk():
        if op.kind == "mul":
            assert len({operand.shape for operand in op.operands}) == 1


def test_convolutions_without_spatial_dims_are_not_split():
    def fn(x, w):
        return lax.conv_general_dilated(x, w, (), [])

    program = capture(fn, (shape(2, 3), shape(4, 3))).program
    assert compile_program(program, TPU, TILE).program is program


def test_a_program_with_a_loop_and_nothing_to_split_stays_itself():
    def fn(x, w):
        return lax.fori_loop(0, 3, lambda _, y: jnp.tanh(y @ w), x)

    program = capture(fn, (shape(64, 64), shape(64, 64))).program
    # Shapes that say that the program has a small batch of images.
    shapes = shape_layouts(program)._replace(images={(1, 1): (0, 0)})
    layouts = Layouts(TILE).changed(shapes=shapes)
    begun = replace(start_compilation(program, TPU, TILE), layouts=layouts)
    assert convert_space_to_batch(begun).program is program


def test_a_reduction_of_several_arrays_reads_all_of_them_whole():
    def fn(order):
        def reduced(x, w):
            return lax.reduce(
                order(conv(x, w), x),
                (0.0, 0.0),
                lambda a, b: (a[0] + b[0], a[1] + b[1]),
                (3,),
            )

        return copies_of(reduced, shape(2, 64, 64, 128), shape(3, 3, 128, 128))

    assert sorted(fn(lambda a, b: (a, b))) == sorted(fn(lambda a, b: (b, a)))
