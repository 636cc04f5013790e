"""Grouped convolutions, computed in ways that train fast on a CPU.

XLA's CPU backend has no fast kernel for them, least of all for their gradients. They are
computed as a dense convolution whose kernel is 0 between the groups, and a depthwise one as
a sum of shifted inputs times one number per channel. Parameters and results stay the same;
what is priced stays the convolution. `benchmarks/codesign/grouped_convs.py` has the gain.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax


def with_cpu_convs(apply: Callable[[], Any]) -> Any:
    """The result of `apply()`; on a CPU, flax's grouped convolutions use `grouped_conv`."""
    import flax.linen as nn  # of the extra `zoo`, and of who has a module

    def interceptor(next_fn: Any, args: Any, kwargs: Any, context: Any) -> Any:
        is_call = context.method_name == "__call__" and len(args) == 1
        if is_call and isinstance(context.module, nn.Conv) and not kwargs:
            module, x = context.module, args[0]
            if _is_plain_grouped(module, x) and not module.is_initializing():
                return _flax_conv(module, x)
        return next_fn(*args, **kwargs)

    if jax.default_backend() != "cpu":
        return apply()
    with nn.intercept_methods(interceptor):
        return apply()


def _is_plain_grouped(module: Any, x: Any) -> bool:
    """Whether an `nn.Conv` of a batch is grouped, and nothing else is special."""
    dilations = {module.input_dilation, module.kernel_dilation}
    return (
        module.feature_group_count > 1
        and x.ndim == 4
        and len(module.kernel_size) == 2
        and x.dtype == module.param_dtype
        and dilations <= {1, (1, 1), None}
        and module.padding in ("SAME", "VALID")
        and module.mask is None
        and module.dtype is None
    )


def _flax_conv(module: Any, x: Any) -> Any:
    """The output of a grouped `nn.Conv`."""
    kernel = module.get_variable("params", "kernel")
    given = module.strides if module.strides is not None else 1
    strides = (given, given) if isinstance(given, int) else tuple(given)
    pads = lax.padtype_to_pads(x.shape[1:3], kernel.shape[:2], strides, module.padding)
    y = grouped_conv(x, kernel, strides, pads, module.feature_group_count)
    return y + module.get_variable("params", "bias") if module.use_bias else y


def grouped_conv(
    x: Any,
    kernel: Any,
    strides: Sequence[int],
    pads: Sequence[tuple[int, int]],
    groups: int,
) -> Any:
    """Grouped convolution of x [B, pixels.., C], kernel [window.., C / groups, D].

    Results equal those of `lax.conv_general_dilated`, up to rounding.
    """
    *window, inside, size = kernel.shape
    if inside == 1:
        repeated = jnp.repeat(x, size // groups, axis=-1) if size > groups else x
        return _depthwise_sum(repeated, kernel.reshape(*window, size), strides, pads)
    grouped = kernel.reshape(*window, 1, inside, groups, size // groups)
    apart = jnp.eye(groups, dtype=kernel.dtype)[:, None, :, None]
    full = (grouped * apart).reshape(*window, groups * inside, size)
    last = x.ndim - 1
    places = (0, last, *range(1, last))
    numbers = lax.ConvDimensionNumbers(
        places, (last, last - 1, *range(last - 1)), places
    )
    return lax.conv_general_dilated(x, full, strides, pads, dimension_numbers=numbers)


def _depthwise_sum(
    x: Any, kernel: Any, strides: Sequence[int], pads: Sequence[tuple[int, int]]
) -> Any:
    """Depthwise convolution of x [B, pixels.., C] with a kernel [window.., C].

    Sums of 16-bit numbers are in float32, as XLA's are.
    """
    dtype = x.dtype
    x = x.astype(jnp.promote_types(dtype, jnp.float32))
    edges = [(0, 0, 0), *((before, after, 0) for before, after in pads), (0, 0, 0)]
    x = lax.pad(x, jnp.zeros((), x.dtype), edges)
    ends = [
        (size - reach) // stride * stride + 1
        for size, reach, stride in zip(
            x.shape[1:-1], kernel.shape[:-1], strides, strict=True
        )
    ]
    total: Any = sum(
        x[
            :,
            *(
                slice(begin, begin + end, stride)
                for begin, end, stride in zip(at, ends, strides, strict=True)
            ),
        ]
        * kernel[at]
        for at in product(*map(range, kernel.shape[:-1]))
    )
    return total.astype(dtype)
