"""Prices: the seconds that each op of a program adds to the fusions it is part of.

The planner multiplies them by a device's share of the op to compare partitionings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from meshwright.predict.compilers.model.fusion import Fusion
from meshwright.predict.compilers.model.tiled_layouts import Layouts
from meshwright.program.ir import Op, Value


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
