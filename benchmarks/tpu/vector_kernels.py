"""Cycles that the TPU compiler estimates for elementwise kernels, by dtype and operands.

    python -m benchmarks tpu vector_kernels [--chips v5e,v4,v6e]

Each kernel works on arrays of 8,192 x 2,048 elements. What they have in common and where
they differ says what an array, an output and a transcendental cost (needs
`meshwright[tpu]`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

from benchmarks.harness import STORED, Options, benchmark, option

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")

import jax
import jax.numpy as jnp
from jax.experimental import topologies
from jax.sharding import SingleDeviceSharding

SHAPE = 8192, 2048
TOPOLOGIES = {"v5e": "v5e:2x2", "v4": "v4:2x2x1", "v6e": "v6e:2x2"}


def exponentials(x: Any) -> Any:
    """Four exponentials in a row."""
    return jnp.exp(jnp.exp(jnp.exp(jnp.exp(x))))


KERNELS: dict[str, tuple[Callable[..., Any], int]] = {
    "relu": (lambda x: jax.nn.relu(x + 1), 1),
    "product": (lambda x, y: x * y, 2),
    "product_sum": (lambda x, y, z: x * y + z, 3),
    "two_results": (lambda x: (x + 1, x * 2), 1),
    "exponentials": (exponentials, 1),
}
"""Kernels, and the number of their operands."""


def cycles(chip: str, kernel: str, dtype: str) -> int:
    """Estimated cycles of all fusions of a kernel."""
    fn, count = KERNELS[kernel]
    devices = topologies.get_topology_desc(TOPOLOGIES[chip], platform="tpu").devices
    place = SingleDeviceSharding(devices[0])
    x = jax.ShapeDtypeStruct(SHAPE, dtype, sharding=place)
    text = jax.jit(fn).lower(*[x] * count).compile().as_text()
    found = re.findall(r'"estimated_cycles":"(\d+)"', text or "")
    assert found, f"the compiler estimates {kernel}"
    return sum(map(int, found))


@benchmark(option("--chips", default=",".join(TOPOLOGIES)), out=STORED)
def main(options: Options) -> None:
    """Print and store the cycles of each chip, dtype and kernel."""
    for chip in options.chips.split(","):
        for dtype in ("float32", "bfloat16"):
            found = {kernel: cycles(chip, kernel, dtype) for kernel in KERNELS}
            options.save_case(chip, dtype, found)


if __name__ == "__main__":
    main()
