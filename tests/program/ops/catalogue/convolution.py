"""Convolutions: strides, padding, dilation, groups, layouts, and gradients of each."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.program.ops.catalogue import Example

_RNG = np.random.default_rng(15)
_NHWC = ("NHWC", "HWIO", "NHWC")


def _array(*shape):
    return _RNG.normal(size=shape).astype(np.float32)


def _conv(strides, padding, dims=_NHWC, **more):
    def fn(x, w):
        return lax.conv_general_dilated(
            x, w, strides, padding, dimension_numbers=dims, **more
        )

    return fn


_X = _array(4, 16, 8, 2)
_KERNEL = _array(3, 3, 2, 4)
_PADS = ((1, 1), (1, 1))
_UNEVEN = ((2, 0), (0, 2))

_FORMS = {
    "same": (_conv((1, 1), "SAME"), _X, _KERNEL),
    "valid": (_conv((1, 1), "VALID"), _X, _KERNEL),
    "same_lower": (_conv((1, 1), "SAME_LOWER"), _X, _array(4, 2, 2, 4)),
    "strided": (_conv((2, 2), "SAME"), _X, _KERNEL),
    "strided_torch": (_conv((2, 2), _PADS), _X, _KERNEL),
    "uneven_padding": (_conv((1, 1), _UNEVEN), _X, _KERNEL),
    "negative_padding": (_conv((1, 1), ((-1, 3), (3, -1))), _X, _KERNEL),
    "point": (_conv((1, 1), "VALID"), _X, _array(1, 1, 2, 4)),
    "point_strided": (_conv((2, 2), "VALID"), _X, _array(1, 1, 2, 4)),
    "patches": (_conv((4, 4), "VALID"), _X, _array(4, 4, 2, 4)),
    "stem": (_conv((2, 2), ((3, 3), (3, 3))), _X, _array(7, 7, 2, 4)),
    "whole_window": (_conv((1, 1), "VALID"), _X, _array(16, 8, 2, 4)),
    "dilated": (
        _conv((1, 1), ((2, 2), (4, 4)), rhs_dilation=(2, 4)),
        _X,
        _KERNEL,
    ),
    "transposed": (
        _conv((1, 1), ((1, 2), (2, 1)), lhs_dilation=(2, 2)),
        _X,
        _KERNEL,
    ),
    "both_dilated": (
        _conv((1, 3), ((2, 2), (1, 3)), lhs_dilation=(1, 3), rhs_dilation=(2, 2)),
        _X,
        _KERNEL,
    ),
    "strided_and_spread": (
        _conv((2, 4), ((1, 1), (1, 2)), lhs_dilation=(2, 2)),
        _X,
        _KERNEL,
    ),
    "channels_first": (
        _conv((1, 2), "SAME", ("NCHW", "OIHW", "NCHW")),
        _array(4, 2, 8, 8),
        _array(4, 2, 3, 3),
    ),
    "mixed_layout": (
        _conv((1, 1), "SAME", ("HNCW", "IHWO", "WNHC")),
        _array(8, 4, 2, 8),
        _array(2, 3, 3, 4),
    ),
    "one_dim": (
        _conv((1,), ((2, 0),), ("NWC", "WIO", "NWC")),
        _array(2, 16, 4),
        _array(3, 4, 8),
    ),
    "three_dims": (
        _conv((1, 2, 1), "SAME", ("NDHWC", "DHWIO", "NDHWC")),
        _array(2, 4, 4, 2, 2),
        _array(3, 2, 1, 2, 4),
    ),
    "no_space": (_conv((), (), ("NC", "IO", "NC")), _array(4, 8), _array(8, 4)),
    "feature_groups": (
        _conv((1, 1), "SAME", feature_group_count=4),
        _array(2, 8, 4, 8),
        _array(3, 3, 2, 8),
    ),
    "two_feature_groups": (
        _conv((1, 1), "SAME", feature_group_count=2),
        _array(2, 8, 4, 8),
        _array(3, 3, 4, 8),
    ),
    "depthwise": (
        _conv((1, 1), "SAME", feature_group_count=8),
        _array(2, 8, 4, 8),
        _array(3, 3, 1, 8),
    ),
    "depthwise_multiplied": (
        _conv((2, 2), "SAME", feature_group_count=4),
        _array(2, 8, 4, 4),
        _array(3, 3, 1, 8),
    ),
    "batch_groups": (
        _conv((1, 1), "SAME", batch_group_count=4),
        _array(8, 8, 4, 4),
        _array(3, 3, 4, 8),
    ),
    "two_batch_groups": (
        _conv((1, 1), "SAME", batch_group_count=2),
        _array(8, 8, 4, 4),
        _array(3, 3, 4, 8),
    ),
}


def _loss(fn):
    return lambda x, w: jnp.sum(jnp.sin(fn(x, w)))


def _gradients(fn):
    return jax.grad(_loss(fn), (0, 1))


def _curvature(fn):
    first = jax.grad(_loss(fn), 1)
    return jax.grad(lambda x, w: jnp.sum(first(x, w) ** 2), (0, 1))


def _widened(x, w):
    return lax.conv_general_dilated(x, w, (1,), "SAME", preferred_element_type=np.int32)


def _half(x, w):
    x, w = x.astype(jnp.bfloat16), w.astype(jnp.bfloat16)
    return _FORMS["same"][0](x, w)


def _transpose(x, w):
    return lax.conv_transpose(x, w, (2, 2), "SAME", dimension_numbers=_NHWC)


def _each(x, w):
    return jax.vmap(_conv((1, 1), "SAME"))(x, w)


_BYTES = _RNG.integers(-5, 5, (2, 4, 8)).astype(np.int8)
_BYTE_KERNEL = _RNG.integers(-5, 5, (4, 4, 3)).astype(np.int8)
_COMPLEX = (_X + 1j * _X[::-1]).astype(np.complex64)


def _backward(name):
    fn, *arrays = _FORMS[name]
    return Example(f"grad_{name}", _gradients(fn), tuple(arrays))


_BACKWARD = (
    "strided",
    "patches",
    "dilated",
    "channels_first",
    "feature_groups",
    "depthwise",
    "two_batch_groups",
)

MORE: list[Example] = [
    *(_backward(name) for name in _FORMS if name not in _BACKWARD),
    *(
        Example(f"curvature_{name}", _curvature(_FORMS[name][0]), _FORMS[name][1:])
        for name in ("same", "strided", "feature_groups")
    ),
]
"""Further forms, for a longer run."""

EXAMPLES: list[Example] = [
    *(Example(name, fn, (x, w)) for name, (fn, x, w) in _FORMS.items()),
    *map(_backward, _BACKWARD),
    Example("integers", _widened, (_BYTES, _BYTE_KERNEL)),
    Example("half", _half, (_X, _KERNEL)),
    Example("complex", _FORMS["same"][0], (_COMPLEX, _KERNEL.astype(np.complex64))),
    Example("conv_transpose", _transpose, (_X, _KERNEL)),
    Example("each_its_kernel", _each, (_array(4, 2, 8, 4, 2), _array(4, 3, 3, 2, 4))),
    Example("empty", _FORMS["same"][0], (_X[:0], _KERNEL)),
]
