"""The mapping of a product to a design: parts for PEs, tiles, loops, cycles, bytes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from meshwright.errors import AcceleratorError
from meshwright.features.codesign.accelerator.cost.joules import joules_of
from meshwright.features.codesign.accelerator.mapping.folds import (
    Extents,
    Split,
    best_splits,
)
from meshwright.features.codesign.accelerator.mapping.tiles import (
    BUFFERS,
    LoopTiling,
    Misfit,
    Sizes,
    best_tiling,
)
from meshwright.machine import Accelerator

SUM_BYTES = 4
"""Bytes of a partial sum."""

_MODERATE_SHARES = (0.125, 0.5, 1.0)
"""Shares of the global memory that tiles take without need; the rest can hold values.

A larger one is tried where the PEs wait for the global memory: large tiles relieve it."""


@dataclass(frozen=True, slots=True)
class ArrayProduct:
    """A batch of products, or a convolution as one, and the bytes of its operands.

    input_bytes, weight_bytes, output_bytes: of the whole batch. A convolution's inputs
        count once, though its windows overlap.
    halo, row_m: as in `Sizes`.
    is_fixed: whether the left operand has to stream, as a convolution's input does. The
        operands of other products may change their places.
    """

    extents: Extents
    input_bytes: float
    weight_bytes: float
    output_bytes: float
    halo: float = 0.0
    row_m: int = 0
    is_fixed: bool = False

    @classmethod
    def of(
        cls, extents: Extents, itemsize: float, is_fixed: bool = False
    ) -> ArrayProduct:
        """A product whose operands all have elements of `itemsize` bytes."""
        b, m, n, k = extents.batch, extents.m, extents.n, extents.k
        sizes = (b * m * k * itemsize, b * k * n * itemsize, b * m * n * itemsize)
        return cls(extents, *sizes, is_fixed=is_fixed)

    @property
    def turned(self) -> ArrayProduct:
        """The transposed product: the right operand streams."""
        e = self.extents
        return ArrayProduct(
            Extents(e.batch, e.n, e.m, e.k),
            self.weight_bytes,
            self.input_bytes,
            self.output_bytes,
        )


@dataclass(frozen=True, slots=True)
class ProductMapping:
    """The way in which a design computes a product.

    cycles: of the arrays, without stalls. stall_cycles: for which they wait for memory.
    split: division over the PEs.
    dram_bytes: that cross the chip's border, by operand.
    traffic_bytes: read and written, by memory: "dram", "global", "l1".
    energy_j: by memory, and "arrays".
    tilings: by memory that holds the tiles.
    is_turned: whether the operands have changed their places.
    """

    cycles: int
    stall_cycles: int
    split: Split
    dram_bytes: Mapping[str, float]
    traffic_bytes: Mapping[str, float]
    energies_j: Mapping[str, float]
    tilings: Mapping[str, LoopTiling]
    is_turned: bool = False

    @property
    def energy_j(self) -> float:
        """Energy of the multiplications and of all accesses to memories."""
        return math.fsum(self.energies_j.values())

    @property
    def held_bytes(self) -> float:
        """Bytes of the tiles in the memory that all PEs share."""
        return self.tilings["global"].held_bytes if "global" in self.tilings else 0.0

    @property
    def schedule(self) -> str:
        """Loops over tiles from the outermost memory inwards, a line for each memory."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        for memory, tiling in self.tilings.items():
            tile = " x ".join(map(str, tiling.tile))
            loops = ", ".join(tiling.order)
            whole = f", {tiling.kept} whole" if tiling.kept else ""
            yield (
                f"{memory}: loops over {loops}; tile {tile} (m x n x k)"
                f"{whole}, {tiling.held_bytes / 1024:.1f} KiB"
            )
        s = self.split
        yield f"PEs: batch / {s.batch}, m / {s.m}, n / {s.n}"


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
    return min(found, turned, key=_merit)


def _merit(mapping: ProductMapping) -> tuple[float, float]:
    return mapping.cycles + mapping.stall_cycles, mapping.energy_j


def require(mapping: ProductMapping | Misfit, op: str) -> ProductMapping:
    """The mapping; raises `AcceleratorError` if the design cannot run the op."""
    if isinstance(mapping, Misfit):
        raise AcceleratorError(
            f"the design cannot run {op}: its buffer for {mapping.buffer} lacks "
            f"{mapping.lacks_bytes} bytes for the smallest tile"
        )
    return mapping


def _map(
    product: ArrayProduct, chip: Accelerator, is_turned: bool = False
) -> ProductMapping | Misfit:
    best: ProductMapping | Misfit | None = None
    for outer in _outer_tilings(product, chip):
        if isinstance(outer, Misfit):
            return outer
        found = _best_split(product, chip, outer, is_turned)
        if isinstance(best, ProductMapping) and isinstance(found, ProductMapping):
            best = min(best, found, key=_merit)
        elif not isinstance(best, ProductMapping):
            best = found
        if isinstance(best, ProductMapping) and not _waits_inside(best, chip):
            break
    assert best is not None, "there is a tiling, or a reason why not"
    return best


def _waits_inside(mapping: ProductMapping, chip: Accelerator) -> bool:
    """Whether the global memory takes longer than the arrays and main memory."""
    inside = mapping.traffic_bytes.get("global", 0.0)
    if not inside:
        return False
    others_s = max(
        mapping.cycles / chip.clock_hz,
        mapping.traffic_bytes["dram"] / chip.dram_bytes_per_s,
    )
    return inside / chip.global_bytes_per_s > others_s


def _best_split(
    product: ArrayProduct, chip: Accelerator, outer: LoopTiling | None, is_turned: bool
) -> ProductMapping | Misfit:
    """The best division over the PEs, with given tiles in the global memory."""
    best: ProductMapping | Misfit | None = None
    for cycles, split in best_splits(product.extents, chip):
        if isinstance(best, ProductMapping) and cycles > _merit(best)[0]:
            break
        found = _mapping(product, chip, outer, cycles, split, is_turned)
        if not isinstance(best, ProductMapping):
            best = found
        elif isinstance(found, ProductMapping):
            best = min(best, found, key=_merit)
    assert best is not None, "a product can be left whole"
    return best


def least_tile(chip: Accelerator) -> tuple[int, int, int]:
    """The smallest tile that keeps one array busy: what stays in it, and one line."""
    rows, columns = chip.array
    if chip.dataflow == "output":
        return rows, columns, 1
    if chip.dataflow == "input":
        return columns, 1, rows
    return 1, columns, rows


def _sizes(product: ArrayProduct) -> Sizes:
    """One product of the batch as its memories see it."""
    e = product.extents
    each = (product.input_bytes, product.weight_bytes, product.output_bytes)
    inputs, weights, outputs = (size / e.batch for size in each)
    sums = float(SUM_BYTES * e.m * e.n)
    sizes = (inputs, weights, outputs, sums)
    return Sizes((e.m, e.n, e.k), sizes, product.halo, product.row_m)


def _outer_tilings(
    product: ArrayProduct, chip: Accelerator
) -> Iterator[LoopTiling | Misfit | None]:
    """Tiles in the global memory, from small to large; `None` if the chip has none."""
    if not chip.global_bytes:
        yield None
        return
    room, least = float(chip.global_bytes), least_tile(chip)
    for share in _MODERATE_SHARES:
        sizes = _sizes(product)
        yield best_tiling(sizes, (room,), least, share * room, may_keep=False)


def _mapping(
    product: ArrayProduct, chip: Accelerator, outer: LoopTiling | None, cycles: int,
    split: Split, is_turned: bool,
) -> ProductMapping | Misfit:  # fmt: skip
    batch, sizes = product.extents.batch, _sizes(product)
    tile = sizes.dims if outer is None else outer.tile
    inner = _inner_tiling(sizes, tile, split, chip)
    if isinstance(inner, Misfit):
        return inner
    inside = _inside_bytes(sizes, outer, inner, split, batch)
    outside = inside if outer is None else [b * batch for b in outer.bytes]
    dram: dict[str, float] = {
        "inputs": outside[0], "weights": outside[1], "outputs": outside[2] + outside[3]
    }  # fmt: skip
    traffic = {"dram": math.fsum(outside)}
    tilings = {"l1": inner}
    if outer is not None:
        traffic["global"] = math.fsum(inside)
        tilings = {"global": outer, "l1": inner}
    traffic["l1"] = _array_bytes(product, chip, split)
    seconds = max(
        traffic["dram"] / chip.dram_bytes_per_s,
        traffic.get("global", 0.0) / (chip.global_bytes_per_s or math.inf),
    )
    if is_turned:
        dram = {
            "inputs": dram["weights"],
            "weights": dram["inputs"],
            "outputs": dram["outputs"],
        }
    return ProductMapping(
        cycles=cycles,
        stall_cycles=max(0, math.ceil(seconds * chip.clock_hz) - cycles),
        split=split,
        dram_bytes=dram,
        traffic_bytes=traffic,
        energies_j=joules_of(traffic, product.extents.multiply_adds, chip),
        tilings=tilings,
        is_turned=is_turned,
    )


def _inner_tiling(
    sizes: Sizes, tile: tuple[int, int, int], split: Split, chip: Accelerator
) -> LoopTiling | Misfit:
    """Tiles in the memories of one PE, which computes a part of a tile of the chip."""
    part = (-(-tile[0] // split.m), -(-tile[1] // split.n), tile[2])
    m, n, k = (p / d for p, d in zip(part, sizes.dims, strict=True))
    inputs, weights, outputs, sums = sizes.bytes
    is_whole_k = tile[2] >= sizes.dims[2]
    scaled = (
        inputs * m * k,
        weights * k * n,
        (outputs if is_whole_k else sums) * m * n,
        sums * m * n,
    )
    room = _l1_room(chip)
    least = least_tile(chip)
    # An array that keeps no sums adds those of its next fold in the PE's memory.
    adds_there = chip.dataflow != "output" and sizes.dims[2] > least[2]
    seen = Sizes(part, scaled, sizes.halo, sizes.row_m, adds_there)
    return best_tiling(seen, room, least)


def _inside_bytes(
    sizes: Sizes, outer: LoopTiling | None, inner: LoopTiling, split: Split, batch: int
) -> list[float]:
    """Bytes that all PEs take from the memory above theirs, and give to it.

    PEs that divide n read the same inputs, and PEs that divide m the same weights; one read
    serves them all. What a PE holds whole of a tile stays while the tile does.
    """
    parts = (split.m, split.n, split.m * split.n, split.m * split.n)
    if outer is None:
        return [b * p * batch for b, p in zip(inner.bytes, parts, strict=True)]
    tiles = math.prod(n / t for n, t in zip(sizes.dims, outer.tile, strict=True))
    part = (-(-outer.tile[0] // split.m), -(-outer.tile[1] // split.n), outer.tile[2])
    is_whole = [t >= p for t, p in zip(inner.tile, part, strict=True)]
    held = (is_whole[0] and is_whole[2], is_whole[2] and is_whole[1])
    held = (*held, is_whole[0] and is_whole[1])
    kept = [w or inner.kept == name for w, name in zip(held, BUFFERS, strict=True)]
    kept.append(kept[2])
    return [
        batch * (o if is_kept else i * p * tiles)
        for o, i, p, is_kept in zip(outer.bytes, inner.bytes, parts, kept, strict=True)
    ]


def _l1_room(chip: Accelerator) -> tuple[float, ...]:
    """Bytes of a PE's memories: one for each operand, or one for all.

    A second memory of a PE extends the first.
    """
    total = float(sum(chip.l1_bytes) + chip.l2_bytes)
    if chip.l1 == "shared":
        return (total,)
    share = 1 + chip.l2_bytes / sum(chip.l1_bytes)
    return tuple(size * share for size in chip.l1_bytes)


def _array_bytes(product: ArrayProduct, chip: Accelerator, split: Split) -> float:
    """Bytes that arrays exchange with the first memories; the first fold reads no sums."""
    e = product.extents
    part, pes = e.divided(split), split.batch * split.m * split.n
    rows, columns = chip.array
    m, n, k = part.m, part.n, part.k
    itemsize = product.input_bytes / max(1, e.batch * e.m * e.k)
    width = product.weight_bytes / max(1, e.batch * e.n * e.k)
    itemsize = max(itemsize, width)  # a convolution's windows overlap in its input
    if chip.dataflow == "output":
        read = m * k * -(-n // columns) + k * n * -(-m // rows)
        sums = m * n
    elif chip.dataflow == "input":
        read, sums = m * k + k * n * -(-m // columns), m * n * (2 * -(-k // rows) - 1)
    else:
        read, sums = k * n + m * k * -(-n // columns), m * n * (2 * -(-k // rows) - 1)
    return pes * part.batch * (read * itemsize + sums * SUM_BYTES)
