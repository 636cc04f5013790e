"""The mapping of a product to a design: parts for PEs, tiles, loops, cycles, bytes."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

from meshwright.errors import AcceleratorError
from meshwright.features.codesign.accelerator.cost.joules import joules_of
from meshwright.features.codesign.accelerator.mapping.folds import (
    STREAMED,
    Split,
    best_splits,
    least_tile,
    loading_cycles,
)
from meshwright.features.codesign.accelerator.mapping.product import (
    SUM_BYTES,
    ArrayProduct,
    ProductMapping,
)
from meshwright.features.codesign.accelerator.mapping.tiled_cycles import array_run
from meshwright.features.codesign.accelerator.mapping.tiles import (
    LoopTiling,
    Misfit,
    Pace,
    Sizes,
    best_tiling,
)
from meshwright.features.codesign.accelerator.mapping.traffic import (
    array_bytes,
    inside_bytes,
    part_of,
    shares_of,
)
from meshwright.machine import Accelerator

_MODERATE_SHARES = (0.125, 0.5, 1.0)
"""Shares of the global memory that tiles take without need; the rest can hold values.

A larger one is tried where the PEs wait for the global memory: large tiles relieve it."""


@lru_cache(maxsize=1 << 17)
def map_to(product: ArrayProduct, chip: Accelerator) -> ProductMapping | Misfit:
    """The fastest mapping of a product, and of equally fast ones that of least energy."""
    found = _map(product, chip)
    if product.is_fixed:
        return found
    turned = _map(product.turned, chip, is_turned=True)
    if isinstance(found, Misfit):
        return turned
    if isinstance(turned, Misfit):
        return found
    return min(found, turned, key=lambda each: _merit(each, chip))


def _merit(mapping: ProductMapping, chip: Accelerator) -> tuple[float, float, float]:
    """Cycles, those that remain if all values stay on the chip, and joules."""
    inside = mapping.traffic_bytes.get("global", 0.0)
    rate = chip.global_bytes_per_s if inside else math.inf
    on_chip = max(mapping.cycles, math.ceil(inside / rate * chip.clock_hz))
    return mapping.cycles + mapping.stall_cycles, on_chip, mapping.energy_j


def require(mapping: ProductMapping | Misfit, op: str) -> ProductMapping:
    """The mapping; raises `AcceleratorError` if the design cannot run the op."""
    if isinstance(mapping, Misfit):
        raise AcceleratorError(
            f"the design cannot run {op}: its {mapping.buffer} lacks "
            f"{mapping.lacks_bytes} bytes for the smallest tile"
        )
    return mapping


def _map(
    product: ArrayProduct, chip: Accelerator, is_turned: bool = False
) -> ProductMapping | Misfit:
    """The best division over the PEs, each with its best tiles."""
    best: ProductMapping | Misfit | None = None
    for cycles, split in best_splits(product.extents, chip):
        # No tiles take fewer cycles than none.
        if (
            isinstance(best, ProductMapping)
            and cycles > best.cycles + best.stall_cycles
        ):
            break
        found = _best_tiles(_Part(product, chip, split, is_turned))
        if not isinstance(best, ProductMapping):
            best = found
        elif isinstance(found, ProductMapping):
            best = min(best, found, key=lambda each: _merit(each, chip))
    assert best is not None, "a product can be left whole"
    return best


@dataclass(frozen=True, slots=True)
class _Part:
    """A product that is divided over the PEs of a chip in one way."""

    product: ArrayProduct
    chip: Accelerator
    split: Split
    is_turned: bool


def _best_tiles(part: _Part) -> ProductMapping | Misfit:
    """The best mapping with one division over the PEs."""
    if not part.chip.global_bytes:
        return _mapping(part, None)
    best: ProductMapping | Misfit | None = None
    for share in _MODERATE_SHARES:
        outer = _outer_tiling(part, share)
        if isinstance(outer, Misfit):
            return replace(outer, buffer=f"global {outer.buffer}")
        found = _mapping(part, outer)
        if isinstance(best, ProductMapping) and isinstance(found, ProductMapping):
            best = min(best, found, key=lambda each: _merit(each, part.chip))
        elif not isinstance(best, ProductMapping):
            best = found
        if isinstance(best, ProductMapping) and not _waits_inside(best, part.chip):
            break
    assert best is not None, "there is a share"
    return best


def _waits_inside(mapping: ProductMapping, chip: Accelerator) -> bool:
    """Whether the global memory takes longer than the arrays and main memory."""
    others_s = max(
        mapping.cycles / chip.clock_hz,
        mapping.traffic_bytes["dram"] / chip.dram_bytes_per_s,
    )
    return mapping.traffic_bytes["global"] / chip.global_bytes_per_s > others_s


def _pace(chip: Accelerator) -> Pace:
    """The pace of one array that waits for no memory."""
    load = loading_cycles(chip)
    return Pace(
        streamed=STREAMED[chip.dataflow],
        units=least_tile(chip),
        rows=chip.array[0],
        between=0 if chip.preloads else load + sum(chip.array) - 2,
        returning=0 if chip.preloads or load else chip.array[0],
    )


def _outer_tiling(part: _Part, share: float) -> LoopTiling | Misfit:
    """Tiles in the global memory that take a share of it without need."""
    chip, split = part.chip, part.split
    # Products of the batch that run at once share the main memory.
    each = split.batch * chip.clock_hz / chip.dram_bytes_per_s
    pace = replace(
        _pace(chip), parts=(split.m, split.n, 1), cycles_per_byte=(each, each, each)
    )
    room, least = float(chip.global_bytes), least_tile(chip)
    sizes = _sizes(part.product)
    return best_tiling(sizes, (room,), least, pace, share * room, may_keep=False)


def _sizes(product: ArrayProduct) -> Sizes:
    """One product of the batch as its memories see it."""
    e = product.extents
    each = (product.input_bytes, product.weight_bytes, product.output_bytes)
    inputs, weights, outputs = (size / e.batch for size in each)
    sums = float(SUM_BYTES * e.m * e.n)
    sizes = (inputs, weights, outputs, sums)
    return Sizes((e.m, e.n, e.k), sizes, product.halo, product.row_m)


def _mapping(part: _Part, outer: LoopTiling | None) -> ProductMapping | Misfit:
    """The best mapping with these tiles in the global memory.

    An operand that a PE holds whole stays from tile to tile, which the search for tiles of
    one PE does not see. Where PEs wait for the global memory, such tiles are tried, too.
    """
    first = _with_inner(part, outer, least_tile(part.chip))
    if isinstance(first, Misfit) or outer is None:
        return first
    if not _waits_inside(first, part.chip):
        return first
    m, n, k = part_of(outer.tile, part.split)
    a, b, c = least_tile(part.chip)
    found = [first]
    for least in ((m, b, k), (a, n, k), (m, n, c), (m, n, k)):
        other = _with_inner(part, outer, least)
        if isinstance(other, ProductMapping):
            found.append(other)
    return min(found, key=lambda each: _merit(each, part.chip))


def _with_inner(
    part: _Part, outer: LoopTiling | None, least: tuple[int, int, int]
) -> ProductMapping | Misfit:
    """The mapping with the best tiles of one PE that are no smaller than `least`."""
    product, chip, split = part.product, part.chip, part.split
    batch, sizes = product.extents.batch, _sizes(product)
    inner = _inner_tiling(part, sizes, outer, least)
    if isinstance(inner, Misfit):
        return replace(inner, buffer=f"L1 {inner.buffer}")
    inside = inside_bytes(sizes, outer, inner, split, batch)
    outside = inside if outer is None else [b * batch for b in outer.bytes]
    traffic = {"dram": math.fsum(outside)}
    tilings = {"l1": inner}
    if outer is not None:
        traffic["global"] = math.fsum(inside)
        tilings = {"global": outer, "l1": inner}
    run = array_run(product.extents, split, chip, tuple(tilings.values()))
    traffic["l1"] = array_bytes(product, chip, split, run.loads)
    seconds = max(
        traffic["dram"] / chip.dram_bytes_per_s,
        traffic.get("global", 0.0) / (chip.global_bytes_per_s or math.inf),
    )
    left, right = ("weights", "inputs") if part.is_turned else ("inputs", "weights")
    dram = {left: outside[0], right: outside[1], "outputs": outside[2] + outside[3]}
    return ProductMapping(
        cycles=run.cycles,
        stall_cycles=max(0, math.ceil(seconds * chip.clock_hz) - run.cycles),
        split=split,
        dram_bytes=dram,
        traffic_bytes=traffic,
        energies_j=joules_of(traffic, product.extents.multiply_adds, chip),
        tilings=tilings,
        is_turned=part.is_turned,
    )


def _inner_tiling(
    part: _Part,
    sizes: Sizes,
    outer: LoopTiling | None,
    least: tuple[int, int, int],
) -> LoopTiling | Misfit:
    """Tiles in the memories of one PE, which computes a part of a tile of the chip."""
    chip = part.chip
    tile = sizes.dims if outer is None else outer.tile
    whole = part_of(tile, part.split)
    m, n, k = (p / d for p, d in zip(whole, sizes.dims, strict=True))
    inputs, weights, outputs, sums = sizes.bytes
    is_whole_k = tile[2] >= sizes.dims[2]
    scaled = (
        inputs * m * k,
        weights * k * n,
        (outputs if is_whole_k else sums) * m * n,
        sums * m * n,
    )
    # An array that keeps no sums adds those of its next fold in the PE's memory.
    adds_there = chip.dataflow != "output" and sizes.dims[2] > least_tile(chip)[2]
    seen = Sizes(whole, scaled, sizes.halo, sizes.row_m, adds_there)
    return best_tiling(seen, _l1_room(chip), least, _inner_pace(part, tile))


def _inner_pace(part: _Part, tile: tuple[int, int, int]) -> Pace:
    """The pace of one PE that waits for the memory above its own, and for no other.

    What main memory takes may stay on the chip, and does not count.

    tile: of the whole chip.
    """
    chip, split = part.chip, part.split
    rate = chip.global_bytes_per_s if chip.global_bytes else chip.dram_bytes_per_s
    each = split.batch * chip.clock_hz / rate
    inputs, weights, sums, _ = (each * share for share in shares_of(tile, split))
    costs = (inputs, weights, sums)
    return replace(_pace(chip), cycles_per_byte=costs)


def _l1_room(chip: Accelerator) -> tuple[float, ...]:
    """Bytes of a PE's memories: one for each operand, or one for all.

    A second memory of a PE extends the first.
    """
    total = float(sum(chip.l1_bytes) + chip.l2_bytes)
    if chip.l1 == "shared":
        return (total,)
    share = 1 + chip.l2_bytes / sum(chip.l1_bytes)
    return tuple(size * share for size in chip.l1_bytes)
