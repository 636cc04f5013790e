"""Depthwise convolutions of flax modules, written for training on a CPU.

XLA's CPU backend has no fast kernel for depthwise convolutions, least of all for their
gradients. Each is also a sum of shifted inputs times one number per channel. That trains
many times as fast there, with the same parameters; what is priced stays the convolution.
Letters in shapes: B batch, H, W pixels, C channels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp


def train_depthwise_as_sums(apply: Callable[[], Any]) -> Any:
    """The result of `apply()`, which on a CPU computes depthwise `nn.Conv`s as sums."""
    import flax.linen as nn  # of the extra `zoo`, and of who has a module

    def interceptor(next_fn: Any, args: Any, kwargs: Any, context: Any) -> Any:
        is_call = context.method_name == "__call__" and len(args) == 1
        if is_call and isinstance(context.module, nn.Conv) and not kwargs:
            module, x = context.module, args[0]
            if _is_plain_depthwise(module, x) and not module.is_initializing():
                return _convolved(module, x)
        return next_fn(*args, **kwargs)

    if jax.default_backend() != "cpu":
        return apply()
    with nn.intercept_methods(interceptor):
        return apply()


def _is_plain_depthwise(module: Any, x: Any) -> bool:
    """Whether a convolution of images has one kernel per channel, and nothing special."""
    dilations = {module.input_dilation, module.kernel_dilation}
    return (
        x.ndim == 4
        and module.feature_group_count == module.features == x.shape[-1] > 1
        and dilations <= {1, (1, 1), None}
        and module.padding in ("SAME", "VALID")
        and module.mask is None
        and module.dtype is None
    )


def _convolved(module: Any, x: Any) -> Any:
    """The output of a depthwise `nn.Conv`."""
    kernel = module.get_variable("params", "kernel")
    strides = module.strides if module.strides is not None else 1
    strides = (strides, strides) if isinstance(strides, int) else tuple(strides)
    y = depthwise_sum(x, kernel, strides, module.padding)
    return y + module.get_variable("params", "bias") if module.use_bias else y


def depthwise_sum(x: Any, kernel: Any, strides: tuple[int, ...], padding: str) -> Any:
    """Depthwise convolution of x [B, H, W, C] with a kernel [h, w, 1, C]."""
    window = kernel.shape[:2]
    pads = jax.lax.padtype_to_pads(x.shape[1:3], window, strides, padding)
    x = jnp.pad(x, ((0, 0), *pads, (0, 0)))
    rows, columns = (
        (size - reach) // stride * stride + 1
        for size, reach, stride in zip(x.shape[1:3], window, strides, strict=True)
    )
    down, right = strides
    return sum(
        x[:, i : i + rows : down, j : j + columns : right] * kernel[i, j, 0]
        for i in range(window[0])
        for j in range(window[1])
    )
