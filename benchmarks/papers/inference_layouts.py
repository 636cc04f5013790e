"""Inference of a decoder in closed form: traffic, memory and time of its layouts.

The formulas are those of Pope et al., "Efficiently Scaling Transformer Inference" (MLSys
2023). A chip has coordinates (x, y, z) on a torus; weights [E, F] are split by x along E
and by y and z along F. *Weight-stationary* layouts move activations to the weights (1-D if
x is 1), *weight-gathered* layouts gather weights over N chips, which split the tokens.

Derived here: bytes sent, best layouts, longest context, parameters, and a lower bound of a
forward pass's time. The efficiency of a pass (MFU, a share of the peak) is measured and
never derived: from it follows the time, and from the time the efficiency.

Letters: E d_model, F d_ff, n chips, N chips over which weights are gathered.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from enum import Enum

from meshwright.errors import MachineError
from meshwright.machine import Machine


def _require_positive(record: Pair | Decoder | InferenceRun) -> None:
    """Raise `MachineError` if an integer field is below 1."""
    for each in fields(record):
        value = getattr(record, each.name)
        if isinstance(value, int) and value < 1:
            raise MachineError(f"{each.name} is {value}; wanted at least 1")


@dataclass(frozen=True, slots=True)
class Pair:
    """Matrices [E, F] and [F, E], and bytes of an element of weights and activations."""

    d_model: int
    d_ff: int
    weight_bytes: int = 2
    value_bytes: int = 2

    def __post_init__(self) -> None:
        _require_positive(self)


@dataclass(frozen=True, slots=True)
class Transfer:
    """An all-gather or reduce-scatter of `num_bytes` among `chips`."""

    num_bytes: float
    chips: int

    @property
    def received_bytes(self) -> float:
        """Bytes that a chip receives: all but its own share."""
        return self.num_bytes * (self.chips - 1) / self.chips


Transfers = tuple[Transfer, ...]


def stationary(pair: Pair, tokens: int, x: int, yz: int) -> Transfers:
    """Transfers of a pair in a weight-stationary layout.

    Activations are gathered before each matrix and scattered after it: [tokens, E / x]
    over y and z, [tokens, F / yz] over x.
    """
    outer = 2 * tokens * pair.d_model / x * pair.value_bytes
    inner = 2 * tokens * pair.d_ff / yz * pair.value_bytes
    return (Transfer(outer, yz), Transfer(inner, x))


def gathered(pair: Pair, tokens: int, chips: int, over: int) -> Transfers:
    """Transfers of a pair in a layout that gathers weights over `over` of the chips."""
    weights = 2 * pair.d_model * pair.d_ff * over / chips * pair.weight_bytes
    values = 2 * tokens * pair.d_model / over * pair.value_bytes
    return (Transfer(weights, over), Transfer(values, chips // over))


def moved_bytes(transfers: Transfers) -> float:
    """Bytes by the paper's measure, which counts a chip's own share as well."""
    return sum(each.num_bytes for each in transfers if each.chips > 1)


def best_x(pair: Pair, chips: int) -> float:
    """The x at which `stationary` layouts move the fewest bytes, as a real number."""
    return math.sqrt(chips * pair.d_model / pair.d_ff)


def best_over(pair: Pair, tokens: int, chips: int) -> float:
    """The N at which `gathered` layouts move the fewest bytes, as a real number."""
    ratio = pair.value_bytes / pair.weight_bytes
    return math.sqrt(ratio * tokens * chips / pair.d_ff)


LAYOUTS = ("WS 1D", "WS 2D", "WG X", "WG XY", "WG XYZ")
"""Weight-stationary and weight-gathered layouts, by the paper's names."""


def layouts(
    pair: Pair, tokens: int, torus: tuple[int, int, int]
) -> dict[str, Transfers]:
    """Transfers of a pair by layout, on a torus of x by y by z chips."""
    x, y, z = torus
    chips = x * y * z
    found = (
        stationary(pair, tokens, 1, chips),
        stationary(pair, tokens, x, y * z),
        *(gathered(pair, tokens, chips, over) for over in (x, x * y, chips)),
    )
    return dict(zip(LAYOUTS, found, strict=True))


@dataclass(frozen=True, slots=True)
class Decoder:
    """Sizes of a decoder with tied embeddings and no biases.

    ffn_matrices: 3 if the feed-forward layer is gated, else 2.
    """

    layers: int
    d_model: int
    d_ff: int
    heads: int
    d_head: int
    vocab: int
    kv_heads: int = 1
    ffn_matrices: int = 3

    def __post_init__(self) -> None:
        _require_positive(self)

    @property
    def parameters(self) -> int:
        """Elements of all matrices; the vectors of norms are left out."""
        attention = 2 * (self.heads + self.kv_heads) * self.d_head
        block = self.d_model * (self.ffn_matrices * self.d_ff + attention)
        return self.layers * block + self.vocab * self.d_model


class CacheCut(Enum):
    """The dim along which chips split cached keys and values."""

    HEADS = "head"  # fewer heads than chips are replicated
    BATCH = "batch"


def cache_bytes(decoder: Decoder, batch: int, chips: int, cut: CacheCut) -> int:
    """Bytes of 16-bit keys and values that a chip holds per position."""
    by_head = cut is CacheCut.HEADS
    heads = math.ceil(decoder.kv_heads / chips) if by_head else decoder.kv_heads
    sequences = batch if by_head else math.ceil(batch / chips)
    return decoder.layers * 2 * sequences * heads * decoder.d_head * 2


def longest_context(free_bytes: float, bytes_per_position: int) -> int:
    """Positions of each sequence whose cache fits into a chip's `free_bytes`."""
    return int(free_bytes // bytes_per_position)


def pass_s(parameters: float, tokens: int, machine: Machine, mfu: float) -> float:
    """Seconds for `tokens` at a share `mfu` of the peak: 2 operations a parameter."""
    peak = machine.num_devices * machine.chip.half_flops_per_s
    return 2 * parameters * tokens / (peak * mfu)


def mfu_of(parameters: float, tokens: int, machine: Machine, seconds: float) -> float:
    """Share of the peak that a time implies; the inverse of `pass_s`."""
    return pass_s(parameters, tokens, machine, 1.0) / seconds


@dataclass(frozen=True, slots=True)
class InferenceRun:
    """Forward passes: `count` passes over `new` tokens of each of `batch` sequences.

    context: positions in the cache. cut: how chips split the cache. layout: one of
    `LAYOUTS`. weight_bytes: bytes of a parameter.
    """

    batch: int
    new: int
    count: int
    context: int
    cut: CacheCut
    layout: str
    weight_bytes: int

    def __post_init__(self) -> None:
        _require_positive(self)
        if self.layout not in LAYOUTS:
            raise MachineError(
                f"no layout {self.layout!r}; there are {', '.join(LAYOUTS)}"
            )

    @property
    def tokens(self) -> int:
        """Tokens of all passes."""
        return self.batch * self.new * self.count


@dataclass(frozen=True, slots=True)
class Floor:
    """Lower bounds of the seconds of passes, at the peak rate of each resource.

    compute_s: operations of the matrix units. memory_s: weights and cache, read once a
    pass. network_s: collectives of the feed-forward layers, over all links of a chip.
    """

    compute_s: float
    memory_s: float
    network_s: float

    @property
    def seconds(self) -> float:
        """Lower bound with perfect overlap."""
        return max(self.compute_s, self.memory_s, self.network_s)


def floor_of(decoder: Decoder, run: InferenceRun, machine: Machine) -> Floor:
    """Lower bounds of passes on a machine whose grid is a torus of three dims."""
    chips, chip = machine.num_devices, machine.chip
    x, y, z = torus_of(machine)
    pair = Pair(decoder.d_model, decoder.d_ff, run.weight_bytes)
    moved = layouts(pair, run.batch * run.new, (x, y, z))[run.layout]
    received = sum(each.received_bytes for each in moved)
    over = {"WG X": x, "WG XY": x * y, "WG XYZ": chips}.get(run.layout, 1)
    weights = decoder.parameters * run.weight_bytes * over / chips
    cache = cache_bytes(decoder, run.batch, chips, run.cut) * run.context
    return Floor(
        pass_s(decoder.parameters, run.tokens, machine, 1.0),
        run.count * (weights + cache) / chip.hbm_bytes_per_s,
        run.count * decoder.layers * received / network_bytes_per_s(machine),
    )


def torus_of(machine: Machine) -> tuple[int, int, int]:
    """Extents of the machine's innermost level, which has three dims."""
    x, y, z = (d.extent for d in machine.grid if d.level == machine.levels[0])
    return x, y, z


def network_bytes_per_s(machine: Machine) -> float:
    """Bytes per second out of a chip over both links of each dim of its torus."""
    level = machine.levels[0]
    return 2 * len(level.extents) * level.link_bytes_per_s
