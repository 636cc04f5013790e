"""Prices: the seconds that each op of a program adds to the fusions it is part of.

The planner multiplies them by a device's share of the op to compare partitionings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from meshwright.predict.compilers.model.fusion import Fusion
from meshwright.predict.compilers.model.tiled_layouts import Layouts
from meshwright.program.analysis.executions import num_iterations
from meshwright.program.ir import Op, Value, Wire

type LoopWire = tuple[Op, Wire]
"""A loop, and the path of one array into, through and out of it."""


class ArrayKernel(NamedTuple):
    """A kernel that fills, copies or rounds an array of a loop, or a slice of it.

    num_bytes: bytes that it reads and writes if it is not partitioned.
    runs: executions of the kernel per iteration of the loop.
    """

    root: Op
    num_bytes: float
    runs: float


class AccessPrice(NamedTuple):
    """Seconds that an op adds to a step when it reads or writes the whole of a value.

    seconds: the part of the fusion's time that the access takes.
    memory_s, vector_s: time in memory and in the vector unit if nothing else ran.
    """

    seconds: float
    memory_s: float
    vector_s: float

    def plus(self, other: AccessPrice | None) -> AccessPrice:
        """The sum of two prices, field by field; `None` is no price."""
        if other is None:
            return self
        return AccessPrice(*(a + b for a, b in zip(self, other, strict=True)))


@dataclass(frozen=True, slots=True)
class OpPrices:
    """Prices of the ops of a program, at its uniform partition over `num_devices`.

    In the uniform partition every device computes an equal share of each op.
    layouts: dtype, padding and memory space of values.
    fusions: the compiler's fusions before multi-output fusion.
    overwritten: values whose buffers later values reuse.
    small_batch: other prices, for devices with few images; `None` if the program has no
        images that this affects.
    hidden: ops that run in the vector unit while the matrix unit computes the product
        with which they are fused.
    matrix: for each op, seconds of a step per second in the matrix unit.
    vector_s: for each op, seconds per vector operation.
    accesses: for each op, prices of the values that it reads and writes.
    launch_s: for each op, seconds of the launch, which no partition changes.
    array_kernels: for wires of loops, the kernels that fill, copy or round the array.
        The compiler adds them, so that they belong to no op of the program.
    """

    layouts: Layouts
    fusions: tuple[Fusion, ...]
    num_devices: int
    overwritten: frozenset[Value]
    small_batch: SmallBatchPrices | None = None
    hidden: set[Op] = field(default_factory=set[Op])
    matrix: dict[Op, float] = field(default_factory=dict[Op, float])
    vector_s: dict[Op, float] = field(default_factory=dict[Op, float])
    accesses: dict[Op, dict[Value, AccessPrice]] = field(
        default_factory=dict[Op, dict[Value, AccessPrice]]
    )
    launch_s: dict[Op, float] = field(default_factory=dict[Op, float])
    array_kernels: dict[LoopWire, list[ArrayKernel]] = field(
        default_factory=dict["LoopWire", "list[ArrayKernel]"]
    )

    def add_array_kernel(
        self, wire: LoopWire, root: Op, num_bytes: float, is_inside: bool = False
    ) -> None:
        """Record a kernel of a wire's array.

        is_inside: whether it runs in each iteration, and not once per loop.
        """
        runs = 1.0 if is_inside else 1 / max(1, num_iterations(wire[0]))
        kernel = ArrayKernel(root, num_bytes, runs)
        self.array_kernels.setdefault(wire, []).append(kernel)


@dataclass(frozen=True, slots=True)
class SmallBatchPrices:
    """Prices of ops on devices with few images, where XLA splits images in space.

    The pass (space-to-batch) adds copies, and less is fused.
    images: for each op, one of its images and the dim that counts images.
    max_images: largest number of images on a device at which the pass splits them.
    """

    images: Mapping[Op, tuple[Value, int]]
    max_images: int
    prices: OpPrices
