"""Parts of images: with their halos they give the result of the whole."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from jax import lax

from meshwright.predict.compilers.tpu.spatial_split import (
    PARTS,
    SpatialSplit,
    Window,
    split_of_result,
)
from meshwright.program.capture import capture

PLAIN = ("NHC", "HIO", "NHC")


def convolution(width, kernel, stride=1, padding="SAME", stuffing=1):
    def fn(x, w):
        return lax.conv_general_dilated(
            x, w, (stride,), padding, (stuffing,), dimension_numbers=PLAIN
        )

    shapes = (2, width, 1), (kernel, 1, 1)
    given = (jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes)
    (op,) = capture(fn, tuple(given)).program.ops
    return op


WINDOWS = st.builds(
    convolution,
    st.integers(16, 70),
    st.integers(1, 3),
    st.integers(1, 3),
    st.tuples(st.tuples(st.integers(0, 2), st.integers(0, 2))),
)


@given(WINDOWS, st.randoms(use_true_random=False))
def test_parts_with_halos_give_the_result_of_the_whole(op, random):
    window = Window.of(op)
    part = window.first_part()
    assert part is not None
    assert window.is_splittable
    pixels = np.array([random.random() for _ in range(window.image.extent)])
    kernel = np.array([random.random() for _ in range(window.kernel)])
    own = part.extent - window.halo
    filled = np.zeros(own * PARTS + window.halo)
    filled[window.low : window.low + len(pixels)] = pixels

    def convolved(x, count):
        starts = range(0, count * window.stride, window.stride)
        return [x[i : i + window.kernel] @ kernel for i in starts]

    made = window.made_of(part.extent)
    parts = [filled[i * own : i * own + part.extent] for i in range(PARTS)]
    found = [y for part in parts for y in convolved(part, made)]
    whole = convolved(filled, window.made.extent)
    np.testing.assert_allclose(found[: window.made.extent], whole)


@given(WINDOWS, st.integers(1, 20))
def test_parts_that_are_split_already_give_no_less_than_the_whole(op, extent):
    window = Window.of(op)
    assume(extent * PARTS >= window.image.extent)
    part = window.next_part(extent)
    assert window.made_of(part.extent) * PARTS >= window.made.extent


def test_first_parts_include_the_padding_and_later_parts_do_not():
    """The extents of a 3-D U-Net's first levels, as XLA's compiler prints them."""
    first = Window.of(convolution(128, 3))
    assert (first.first_part().extent, first.made_of(19)) == (19, 17)
    assert first.next_part(17).extent == 19
    halved = Window.of(convolution(128, 3, 2))
    assert (halved.next_part(17).extent, halved.made_of(18)) == (18, 8)
    doubled = Window.of(convolution(64, 2, 1, ((1, 1),), stuffing=2))
    assert doubled.made_of(doubled.next_part(9).extent) == 18


@pytest.mark.parametrize(
    ("op", "is_cut"),
    [
        (convolution(64, 3), True),
        (convolution(64, 16), False),
        (convolution(64, 2, 1, ((1, 1),), stuffing=2), True),
        (convolution(64, 3, 1, ((2, 1),), stuffing=2), True),
        (convolution(16, 3, 1, ((2, 1),), stuffing=2), False),
        (convolution(64, 3, 1, ((0, 0),), stuffing=2), False),
        (convolution(64, 3, 2, ((1, 1),), stuffing=2), False),
    ],
)
def test_images_are_split_only_if_halos_are_short_and_parts_alike(op, is_cut):
    assert Window.of(op).is_splittable is is_cut


def test_small_images_are_not_split():
    assert Window.of(convolution(13, 3)).first_part() is None
    assert Window.of(convolution(14, 3)).first_part() is not None


@pytest.mark.parametrize(
    ("fn", "kept"),
    [
        (lambda x: jnp.flip(x, 2), SpatialSplit(0, 1, 2, 9)),
        (lambda x: jnp.flip(x, 1), None),
        (lambda x: x.transpose(2, 1, 0), SpatialSplit(2, 1, 0, 9)),
        (lambda x: jnp.pad(x, ((0, 0), (0, 0), (1, 0))), SpatialSplit(0, 1, 2, 9)),
        (lambda x: lax.pad(x, 0.0, ((0, 0, 0), (0, 1, 0), (0, 0, 0))), None),
        (lambda x: lax.concatenate([x, x], 2), SpatialSplit(0, 1, 2, 9)),
        (lambda x: lax.concatenate([x, x], 1), None),
        (lambda x: lax.slice(x, (0, 0, 1), (2, 64, 2)), SpatialSplit(0, 1, 2, 9)),
        (lambda x: lax.slice(x, (0, 1, 0), (2, 64, 4)), None),
        (lambda x: lax.sort(x, dimension=2), None),
    ],
)
def test_ops_that_move_features_alone_keep_images_split(fn, kept):
    image = jax.ShapeDtypeStruct((2, 64, 4), jnp.float32)
    op = capture(fn, (image,)).program.ops[-1]
    cuts = [SpatialSplit(0, 1, 2, 9) if v.shape else None for v in op.operands]
    assert split_of_result(op, cuts) == kept
