"""What each op of a program adds to the seconds of the fused units it is part of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from meshwright.predict.compilers.hlo.fusion import Fusion
from meshwright.predict.compilers.hlo.layouts import Layouts
from meshwright.program.ir import Op, Value


class AccessPrice(NamedTuple):
    """What the whole of a value adds to an op that reads or writes it.

    seconds: by the slopes of its unit. memory_s, vector_s: in memory and in the vector
    unit, if there were nothing else.
    """

    seconds: float
    memory_s: float
    vector_s: float

    def plus(self, other: AccessPrice) -> AccessPrice:
        """Both together."""
        return AccessPrice(*(a + b for a, b in zip(self, other, strict=True)))


@dataclass(frozen=True, slots=True)
class OpPrices:
    """What passes through main memory in a program, and what its ops take.

    layout: bytes of values. units: what runs as one, before any are merged.
    matrix: share of an op's seconds in the matrix unit that counts. vector: seconds for
    one of its vector operations. touches: of each value that it reads or writes. launch:
    seconds, however it is cut. num_devices: among which the even share is. overwritten:
    values in whose place others come. covered: ops whose time passes under that of a
    product. few: the same where images are few.
    """

    layout: Layouts
    units: tuple[Fusion, ...]
    num_devices: int
    overwritten: frozenset[Value] = frozenset()
    covered: set[Op] = field(default_factory=set[Op])
    matrix: dict[Op, float] = field(default_factory=dict[Op, float])
    vector: dict[Op, float] = field(default_factory=dict[Op, float])
    touches: dict[Op, dict[Value, AccessPrice]] = field(
        default_factory=dict[Op, dict[Value, AccessPrice]]
    )
    launch: dict[Op, float] = field(default_factory=dict[Op, float])
    few: SmallBatchPrices | None = None


@dataclass(frozen=True, slots=True)
class SmallBatchPrices:
    """What ops take where a device has few images, which are cut in space there.

    That fuses less, and makes copies. images: by op, one of its images and the dim that
    counts them. most: that are few.
    """

    images: Mapping[Op, tuple[Value, int]]
    most: int
    stores: OpPrices
