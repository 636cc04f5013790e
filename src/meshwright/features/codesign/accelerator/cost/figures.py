"""Published figures of energy and area, and what is assumed where none is published.

Energies: Jouppi et al., "Ten Lessons From Three Generations Shaped Google's TPUv4i" (ISCA
2021), table 2, at 45 and 7 nm. Between and beyond, a figure follows the straight line
through both on logarithmic scales: `scaled`.
Areas: the same paper gives the shares of TPU v4i's die: 11 % matrix units, 28 % memory.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

PICOJOULE = 1e-12


@dataclass(frozen=True, slots=True)
class Assumed:
    """A figure without a published source, with the range in which it may lie."""

    value: float
    low: float
    high: float
    reason: str


MULTIPLY_PJ: Mapping[str, tuple[float, float]] = {
    "int8": (0.2, 0.07),
    "bfloat16": (0.7, 0.21),
    "float16": (1.1, 0.34),
    "float32": (3.7, 1.31),
}
"""Energy of a multiplication at 45 and 7 nm. The paper has no bfloat16 at 45 nm: 0.7 keeps
the ratio of 3.3 between the two nodes that float16 has."""

ADD_PJ: Mapping[str, tuple[float, float]] = {
    "int8": (0.1, 0.03),  # summed in int32
    "bfloat16": (0.9, 0.38),  # summed in float32
    "float16": (0.9, 0.38),
    "float32": (0.9, 0.38),
}
"""Energy of the addition to a sum, at 45 and 7 nm, in the format in which sums are kept."""

SRAM_PJ = ((8 << 10, 10.0, 7.5), (32 << 10, 20.0, 8.5), (1 << 20, 100.0, 14.0))
"""Size of a memory, and the energy of an access of 8 bytes at 45 and 7 nm."""

DRAM_PJ: Mapping[str, tuple[float, float]] = {
    "ddr3": (1300.0, 1300.0),
    "gddr6": (350.0, 480.0),
    "hbm2": (250.0, 450.0),
    "lpddr4": (250.0, 500.0),
}
"""Range of the energy of an access of 8 bytes; of lpddr4 it is assumed."""

NODES_NM = (45.0, 7.0)

DIE_MM2, ARRAY_SHARE, MEMORY_SHARE = 400.0, 0.11, 0.28
"""TPU v4i's die (the paper: below 400 mm2), and the shares of matrix units and memory."""

V4I_MULTIPLIERS, V4I_MEMORY_BYTES = 4 * 128 * 128, (128 + 16) << 20

ARRAY_MM2 = ARRAY_SHARE * DIE_MM2 / V4I_MULTIPLIERS
"""Area of a bfloat16 multiplier with its sum and registers, at 7 nm."""

MEMORY_MM2 = MEMORY_SHARE * DIE_MM2 / V4I_MEMORY_BYTES
"""Area of a byte of memory at 7 nm."""

NUMBER_AREA: Mapping[str, Assumed] = {
    "int8": Assumed(0.36, 0.25, 0.5, "energy of int8 relative to bfloat16, 0.10 / 0.59, "
                    "and registers, which only halve"),
    "bfloat16": Assumed(1.0, 1.0, 1.0, "the unit"),
    "float16": Assumed(1.2, 1.1, 1.4, "energy relative to bfloat16"),
    "float32": Assumed(2.9, 2.2, 4.0, "energy relative to bfloat16"),
}  # fmt: skip
"""Area of a multiplier of a format, relative to bfloat16."""

LANE_AREA = Assumed(8.0, 4.0, 16.0, "a float32 lane with registers and functions")
"""Area of a lane of the vector unit, in bfloat16 multipliers."""

CHANNEL_MM2: Mapping[str, Assumed] = {
    "hbm2": Assumed(20.0, 12.0, 30.0, "physical layer and controller of a stack"),
    "gddr6": Assumed(6.0, 4.0, 9.0, "physical layer and controller of 32 bits"),
    "lpddr4": Assumed(3.0, 2.0, 5.0, "physical layer and controller of 32 bits"),
    "ddr3": Assumed(12.0, 8.0, 18.0, "physical layer and controller of 64 bits"),
}
"""Area of a channel of main memory; it does not shrink with the node."""

REST_SHARE = Assumed(0.35, 0.25, 0.45, "control, links and host interface of a chip")
"""Share of the die that is none of arrays, vector units, memory and channels."""

LEAKAGE_W_PER_MM2 = Assumed(
    0.15, 0.10, 0.20, "idle power of TPU v4, 90 W (Cloud documentation), over 600 mm2"
)

DYNAMIC_FACTOR = Assumed(
    1.8, 1.4, 2.4, "clock, control and wires per joule of operations"
)
"""Energy of a chip's logic and memories, relative to that of operations and accesses."""


def scaled(at_nodes: tuple[float, float], node_nm: float) -> float:
    """A figure that is known at 45 and 7 nm, at another node."""
    old, new = at_nodes
    slope = math.log(old / new) / math.log(NODES_NM[0] / NODES_NM[1])
    return new * (node_nm / NODES_NM[1]) ** slope


def area_scale(node_nm: float, of_memory: bool = False) -> float:
    """Area relative to 7 nm: logic with the node's square, memory with its power 1.5.

    Memory cells have shrunk more slowly than logic (ISSCC's yearly tables of SRAM cells).
    """
    return (node_nm / NODES_NM[1]) ** (1.5 if of_memory else 2.0)


def sram_pj(size_bytes: float, node_nm: float) -> float:
    """Energy of a byte read from or written to a memory of a size.

    Between the published sizes, and beyond the largest, it follows straight lines on
    logarithmic scales; below the smallest it stays.
    """
    points = [(size, scaled((old, new), node_nm)) for size, old, new in SRAM_PJ]
    size = max(float(size_bytes), points[0][0])
    for (small, low), (large, high) in pairwise(points):
        if size <= large or large == points[-1][0]:
            slope = math.log(high / low) / math.log(large / small)
            return low * (size / small) ** slope / 8
    raise AssertionError("the last pair of points takes every size")


def dram_pj(kind: str) -> float:
    """Energy of a byte of main memory: the middle of the published range."""
    return math.fsum(DRAM_PJ[kind]) / 2 / 8


def multiply_add_pj(number: str, node_nm: float) -> float:
    """Energy of a multiplication, and of adding the product to a sum."""
    return scaled(MULTIPLY_PJ[number], node_nm) + scaled(ADD_PJ[number], node_nm)
