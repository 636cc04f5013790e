"""Datapath and memories of an accelerator, as a table `[accelerator]` of a machine."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from meshwright.errors import MachineError

DATAFLOWS = ("weight", "output", "input")
"""What stays in the multipliers of a systolic array while the rest streams past."""

SHARINGS = ("private", "shared")
"""A buffer for each operand of a product, or one for all of them."""

DRAMS = ("hbm2", "gddr6", "lpddr4", "ddr3")
"""Kinds of main memory."""

NUMBERS = ("int8", "bfloat16", "float16", "float32")
"""Formats of numbers that multipliers take, the cheapest first."""

_MOST_SIDE, _MOST_GLOBAL, _MOST_NODE_NM = 256, 256 << 20, 1000


@dataclass(frozen=True, slots=True)
class Accelerator:
    """A grid of processing elements (PEs), each with a systolic array and a vector unit.

    pes: PEs along x and along y.
    array: rows and columns of multipliers of one PE; rows sum.
    clock_hz: of the whole chip.
    dataflow: one of `DATAFLOWS`.
    preloads: 1 if an array loads the next operand that stays while it computes, else 0.
    number: one of `NUMBERS`.
    vector_lanes: lanes of one PE's vector unit, each of one float32 multiply-add a cycle.
    l1: one of `SHARINGS`: how a PE's first memory is divided.
    l1_bytes: of one PE, for inputs, weights and outputs.
    l2_bytes: second memory of one PE; 0 for none.
    global_bytes: memory that all PEs share; 0 for none.
    global_bytes_per_s: its bandwidth.
    dram: one of `DRAMS`.
    dram_channels: number of its channels (of HBM, stacks).
    dram_channel_bytes_per_s: bandwidth of one channel.
    dram_channel_bytes: size of one channel's memory.
    batch: examples that a model takes at once, where its size is free.
    launch_s: seconds between two kernels.
    node_nm: feature size of the process.
    """

    pes: tuple[int, int]
    array: tuple[int, int]
    clock_hz: float
    l1_bytes: tuple[int, int, int]
    global_bytes: int
    dram: str
    dram_channels: int
    dram_channel_bytes_per_s: float
    dram_channel_bytes: int
    vector_lanes: int
    global_bytes_per_s: float = 0.0
    dataflow: str = "weight"
    preloads: int = 0
    number: str = "bfloat16"
    l1: str = "private"
    l2_bytes: int = 0
    batch: int = 1
    launch_s: float = 0.0
    node_nm: float = 7.0

    def __post_init__(self) -> None:
        for fault in self._faults():
            raise MachineError(fault)

    def _faults(self) -> Iterator[str]:
        """What is wrong with the entries, each as a sentence."""
        yield from self._unknown_words()
        for name in ("pes", "array"):
            sides = getattr(self, name)
            if not all(1 <= side <= _MOST_SIDE for side in sides):
                yield f"{name} is {sides}; wanted two numbers from 1 to {_MOST_SIDE}"
        for name in (
            "clock_hz", "vector_lanes", "dram_channels", "dram_channel_bytes_per_s",
            "dram_channel_bytes", "batch", "node_nm",
        ):  # fmt: skip
            if not getattr(self, name) > 0:
                yield f"{name} is {getattr(self, name):g}; wanted more than 0"
        if self.node_nm > _MOST_NODE_NM:
            yield f"node_nm is {self.node_nm:g}; wanted at most {_MOST_NODE_NM}"
        if min(self.l1_bytes) < 0 or sum(self.l1_bytes) == 0:
            yield f"l1_bytes is {self.l1_bytes}; wanted three sizes, not all 0"
        if self.global_bytes > _MOST_GLOBAL:
            yield f"global_bytes is {self.global_bytes}; wanted at most {_MOST_GLOBAL}"
        if self.global_bytes and not self.global_bytes_per_s:
            yield "global_bytes_per_s is missing; wanted the bandwidth of global_bytes"
        if self.preloads not in (0, 1):
            yield f"preloads is {self.preloads}; wanted 0 or 1"

    def _unknown_words(self) -> Iterator[str]:
        for name, allowed in (
            ("dataflow", DATAFLOWS),
            ("l1", SHARINGS),
            ("dram", DRAMS),
            ("number", NUMBERS),
        ):
            given = getattr(self, name)
            if given not in allowed:
                yield f"{name} is {given!r}; wanted one of {', '.join(allowed)}"

    @property
    def num_pes(self) -> int:
        """Number of processing elements."""
        return math.prod(self.pes)

    @property
    def num_multipliers(self) -> int:
        """Multipliers of all arrays together."""
        return self.num_pes * math.prod(self.array)

    @property
    def flops_per_s(self) -> float:
        """Peak of all arrays, a multiply-add as two operations."""
        return 2.0 * self.num_multipliers * self.clock_hz

    @property
    def vector_flops_per_s(self) -> float:
        """Peak of all vector units, a multiply-add as two operations."""
        return 2.0 * self.num_pes * self.vector_lanes * self.clock_hz

    @property
    def dram_bytes_per_s(self) -> float:
        """Bandwidth of main memory."""
        return self.dram_channels * self.dram_channel_bytes_per_s

    @property
    def dram_bytes(self) -> int:
        """Size of main memory."""
        return self.dram_channels * self.dram_channel_bytes

    @property
    def on_chip_bytes(self) -> int:
        """Memory of the chip, all levels together."""
        return self.global_bytes + self.num_pes * (sum(self.l1_bytes) + self.l2_bytes)
