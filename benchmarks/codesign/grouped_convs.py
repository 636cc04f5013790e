"""Gradients of grouped convolutions on a CPU: XLA's own, and as `nas` trains them."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.harness import STORED, Options, benchmark, option
from meshwright.features.codesign.nas.searching.cpu_convs import grouped_conv

CASES = (
    (16, 2), (16, 4), (16, 16), (48, 2), (48, 4), (48, 48), (64, 8), (128, 8), (128, 32),
    (256, 32), (256, 256),
)  # fmt: skip
"""Channels and groups, of 32 images of 8 x 8 pixels and a window of 3 x 3."""


def own(x: Any, kernel: Any, groups: int) -> Any:
    """The convolution that XLA compiles."""
    numbers = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(
        x, kernel, (1, 1), "SAME", None, None, numbers, groups
    )


def ours(x: Any, kernel: Any, groups: int) -> Any:
    """The same, as `nas` trains it on a CPU."""
    return grouped_conv(x, kernel, (1, 1), ((1, 1), (1, 1)), groups)


def gradient(conv: Callable[..., Any], channels: int, groups: int) -> Callable[[], Any]:
    """A call that computes the gradients by input and kernel."""
    x = jnp.ones((32, 8, 8, channels))
    kernel = jnp.ones((3, 3, channels // groups, channels))
    found = jax.jit(
        jax.grad(lambda x, k: jnp.square(conv(x, k, groups)).sum(), argnums=(0, 1))
    )
    return lambda: jax.block_until_ready(found(x, kernel))


@benchmark(option("--rounds", type=int, default=7), out=STORED)
def main(options: Options) -> None:
    """Print the milliseconds of both, in turn, and their ratio."""
    for channels, groups in CASES:
        calls = [gradient(conv, channels, groups) for conv in (own, ours)]
        times: tuple[list[float], list[float]] = ([], [])
        for number in range(options.rounds + 1):
            for call, found in zip(calls, times, strict=True):
                began = time.perf_counter()
                call()
                if number:  # the first one compiles
                    found.append(time.perf_counter() - began)
        own_ms, our_ms = (1e3 * median(each) for each in times)
        figures = {"xla_ms": own_ms, "nas_ms": our_ms, "ratio": own_ms / our_ms}
        rounded = {name: round(value, 3) for name, value in figures.items()}
        options.save_case("gradients", f"{channels} in {groups} groups", rounded)


if __name__ == "__main__":
    main()
