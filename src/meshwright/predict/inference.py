"""Inference of a decoder in closed form: what layouts send, hold, and take at least.

After Pope et al., "Efficiently Scaling Transformer Inference" (MLSys 2023). A chip is
named by its place (x, y, z) on a torus; weights [E, F] are stored cut by x along E and by
y and z along F. *Weight-stationary* layouts move activations to them (1-D if x is 1),
*weight-gathered* ones gather weights over N chips, among which the tokens are cut.

Derived here: bytes sent, best layouts, longest context, parameters, and the floor of a
pass's time. Given, never derived: the efficiency of a pass, which is the measured share
of the peak (MFU); from it follows the time, and from the time it.

Letters: E d_model, F d_ff, n chips, N chips over which weights are gathered.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from enum import Enum

from meshwright.errors import MachineError
from meshwright.machine import Machine


def _check_sizes(record: Pair | Decoder | InferenceRun) -> None:
    """`MachineError` for a field that counts something and is below 1."""
    for each in fields(record):
        value = getattr(record, each.name)
        if isinstance(value, int) and value < 1:
            raise MachineError(f"{each.name} is {value}; wanted at least 1")


@dataclass(frozen=True, slots=True)
class Pair:
    """Matrices [E, F] and [F, E], and the bytes of an element of weights and values."""

    d_model: int
    d_ff: int
    weight_bytes: int = 2
    value_bytes: int = 2

    def __post_init__(self) -> None:
        _check_sizes(self)


@dataclass(frozen=True, slots=True)
class Transfer:
    """Bytes that are gathered, or reduced and scattered, among so many chips."""

    num_bytes: float
    chips: int

    @property
    def received_bytes(self) -> float:
        """What a chip receives: all but its own share."""
        return self.num_bytes * (self.chips - 1) / self.chips


Transfers = tuple[Transfer, ...]


def stationary(pair: Pair, tokens: int, x: int, yz: int) -> Transfers:
    """What a pair's layer moves where weights stay.

    Values are gathered before each matrix and scattered after it: [tokens, E / x] over
    y and z, [tokens, F / yz] over x.
    """
    outer = 2 * tokens * pair.d_model / x * pair.value_bytes
    inner = 2 * tokens * pair.d_ff / yz * pair.value_bytes
    return (Transfer(outer, yz), Transfer(inner, x))


def gathered(pair: Pair, tokens: int, chips: int, over: int) -> Transfers:
    """What it moves where weights are gathered over so many chips, and values not."""
    weights = 2 * pair.d_model * pair.d_ff * over / chips * pair.weight_bytes
    values = 2 * tokens * pair.d_model / over * pair.value_bytes
    return (Transfer(weights, over), Transfer(values, chips // over))


def moved_bytes(transfers: Transfers) -> float:
    """The paper's measure: all bytes count, as if every group were large."""
    return sum(each.num_bytes for each in transfers if each.chips > 1)


def best_x(pair: Pair, chips: int) -> float:
    """The x at which `stationary` layouts move least, if it were any number."""
    return math.sqrt(chips * pair.d_model / pair.d_ff)


def best_over(pair: Pair, tokens: int, chips: int) -> float:
    """The N at which weights and values of `gathered` are least together."""
    ratio = pair.value_bytes / pair.weight_bytes
    return math.sqrt(ratio * tokens * chips / pair.d_ff)


LAYOUTS = ("WS 1D", "WS 2D", "WG X", "WG XY", "WG XYZ")
"""Weight-stationary and weight-gathered, as the paper calls them."""


def layouts(
    pair: Pair, tokens: int, torus: tuple[int, int, int]
) -> dict[str, Transfers]:
    """What a pair moves in each of `LAYOUTS` on a torus of x by y by z chips."""
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
    """The sizes of a decoder with tied embeddings and no biases.

    ffn_matrices: three where the feed-forward layer is gated, else two.
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
        _check_sizes(self)

    @property
    def parameters(self) -> int:
        """All matrices; norms, which are vectors, are left out."""
        attention = 2 * (self.heads + self.kv_heads) * self.d_head
        block = self.d_model * (self.ffn_matrices * self.d_ff + attention)
        return self.layers * block + self.vocab * self.d_model


class CacheCut(Enum):
    """Along what the chips divide cached keys and values."""

    HEADS = "head"  # where there are fewer heads than chips, they are repeated
    BATCH = "batch"


def cache_bytes(decoder: Decoder, batch: int, chips: int, cut: CacheCut) -> int:
    """Bytes of keys and values, 16 bits each, that a chip holds per position."""
    by_head = cut is CacheCut.HEADS
    heads = math.ceil(decoder.kv_heads / chips) if by_head else decoder.kv_heads
    sequences = batch if by_head else math.ceil(batch / chips)
    return decoder.layers * 2 * sequences * heads * decoder.d_head * 2


def longest_context(free_bytes: float, bytes_per_position: int) -> int:
    """Positions of each sequence that fit into a chip's `free_bytes`."""
    return int(free_bytes // bytes_per_position)


def pass_s(parameters: float, tokens: int, machine: Machine, mfu: float) -> float:
    """Seconds for so many tokens at a share of the peak: 2 operations a parameter."""
    peak = machine.num_devices * machine.chip.half_flops_per_s
    return 2 * parameters * tokens / (peak * mfu)


def mfu_of(parameters: float, tokens: int, machine: Machine, seconds: float) -> float:
    """The share of the peak that a time means; the inverse of `pass_s`."""
    return pass_s(parameters, tokens, machine, 1.0) / seconds


@dataclass(frozen=True, slots=True)
class InferenceRun:
    """What is run: `count` passes over `new` tokens of each of `batch` sequences.

    context: positions in the cache. cut: of the cache. layout: one of `LAYOUTS`.
    weight_bytes: of a parameter.
    """

    batch: int
    new: int
    count: int
    context: int
    cut: CacheCut
    layout: str
    weight_bytes: int

    def __post_init__(self) -> None:
        _check_sizes(self)
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
    """Seconds that passes take at the full rate of each resource.

    compute_s: of the matrix units. memory_s: to read weights and cache once a pass.
    network_s: for the feed-forward layers' collectives, over all links of a chip.
    """

    compute_s: float
    memory_s: float
    network_s: float

    @property
    def seconds(self) -> float:
        """What no overlap can beat."""
        return max(self.compute_s, self.memory_s, self.network_s)


def floor_of(decoder: Decoder, passes: InferenceRun, machine: Machine) -> Floor:
    """The floor of passes on a machine whose grid is a torus of three dims."""
    chips, chip = machine.num_devices, machine.chip
    x, y, z = torus_of(machine)
    pair = Pair(decoder.d_model, decoder.d_ff, passes.weight_bytes)
    moved = layouts(pair, passes.batch * passes.new, (x, y, z))[passes.layout]
    received = sum(each.received_bytes for each in moved)
    over = {"WG X": x, "WG XY": x * y, "WG XYZ": chips}.get(passes.layout, 1)
    weights = decoder.parameters * passes.weight_bytes * over / chips
    cache = cache_bytes(decoder, passes.batch, chips, passes.cut) * passes.context
    return Floor(
        pass_s(decoder.parameters, passes.tokens, machine, 1.0),
        passes.count * (weights + cache) / chip.hbm_bytes_per_s,
        passes.count * decoder.layers * received / network_bytes_per_s(machine),
    )


def torus_of(machine: Machine) -> tuple[int, int, int]:
    """Extents of the machine's innermost level, which has three dims."""
    x, y, z = (d.extent for d in machine.grid if d.level == machine.levels[0])
    return x, y, z


def network_bytes_per_s(machine: Machine) -> float:
    """Bytes per second out of a chip over both links of each dim of its torus."""
    level = machine.levels[0]
    return 2 * len(level.extents) * level.link_bytes_per_s
