"""Cycles of a product on a grid of systolic arrays, without stalls, in closed form.

A product larger than an array runs in folds. While an operand stays in the array, T rows or
columns of the other stream past. On R rows and C columns a fold takes 2R + C + T - 2 cycles
if weights or inputs stay: R to load, R + C + T - 2 until the last sum leaves. If sums stay,
nothing is loaded, and it takes R + C + T - 2. (Samajdar et al., "A Systematic Methodology
for Characterizing Scalability of DNN Accelerators using SCALE-Sim", ISPASS 2020.)

An array that preloads takes in what stays next while it computes. Each fold but the last
then takes as long as the longer of both. `tiled_cycles` counts folds that stream a tile.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

from meshwright.machine import Accelerator


@dataclass(frozen=True, slots=True)
class Extents:
    """Extents of a batch of products: batch, rows and columns of the result, summed."""

    batch: int
    m: int
    n: int
    k: int

    @property
    def multiply_adds(self) -> int:
        """Multiplications of the whole batch."""
        return self.batch * self.m * self.n * self.k

    def divided(self, split: Split) -> Extents:
        """The largest part that one PE computes."""
        return Extents(
            _ceil(self.batch, split.batch),
            _ceil(self.m, split.m),
            _ceil(self.n, split.n),
            self.k,
        )


@dataclass(frozen=True, slots=True)
class Split:
    """Numbers of parts into which the grid of PEs divides the dims of a product."""

    batch: int = 1
    m: int = 1
    n: int = 1


STREAMED = {"weight": 0, "input": 1, "output": 2}
"""The number among M, N and K of the dim that streams past what stays, by dataflow."""


def least_tile(chip: Accelerator) -> tuple[int, int, int]:
    """The smallest tile that keeps one array busy: what stays in it, and one line."""
    rows, columns = chip.array
    if chip.dataflow == "output":
        return rows, columns, 1
    if chip.dataflow == "input":
        return columns, 1, rows
    return 1, columns, rows


def loading_cycles(chip: Accelerator) -> int:
    """Cycles in which an array takes in what stays; sums start in it."""
    return 0 if chip.dataflow == "output" else chip.array[0]


def _ceil(a: int, b: int) -> int:
    return -(-a // b)


def num_folds(part: Extents, chip: Accelerator) -> tuple[int, int]:
    """The number of folds of one PE's part, and the streamed length of each."""
    rows, columns = chip.array
    if chip.dataflow == "output":
        return part.batch * _ceil(part.m, rows) * _ceil(part.n, columns), part.k
    if chip.dataflow == "input":
        return part.batch * _ceil(part.k, rows) * _ceil(part.m, columns), part.n
    return part.batch * _ceil(part.k, rows) * _ceil(part.n, columns), part.m


def cycles_of(part: Extents, chip: Accelerator) -> int:
    """Cycles of one PE's part of a product in one tile, without stalls."""
    rows, columns = chip.array
    folds, streamed = num_folds(part, chip)
    one = loading_cycles(chip) + rows + columns + streamed - 2
    if not chip.preloads:
        return folds * one
    return one + (folds - 1) * max(streamed, rows)


def splits_of(extents: Extents, chip: Accelerator) -> Iterator[Split]:
    """Ways to divide a product over the grid: one dim along each of its sides."""
    sizes = {"batch": extents.batch, "m": extents.m, "n": extents.n}
    seen = set[Split]()
    for along_x, along_y in product(sizes, repeat=2):
        parts = dict.fromkeys(sizes, 1)
        for dim, pes in ((along_x, chip.pes[0]), (along_y, chip.pes[1])):
            parts[dim] = min(parts[dim] * pes, sizes[dim])
        split = Split(**parts)
        if split not in seen:
            seen.add(split)
            yield split


@lru_cache(maxsize=65536)
def best_splits(extents: Extents, chip: Accelerator) -> tuple[tuple[int, Split], ...]:
    """The ways to divide a product with their cycles, the fewest cycles first."""
    found = [(cycles_of(extents.divided(s), chip), s) for s in splits_of(extents, chip)]
    return tuple(sorted(found, key=lambda pair: pair[0]))
