"""Features of a kernel's tilings (choices of tile sizes), which predict their times.

All are logarithms to base 2 of counts and bytes, or shares. They describe sizes,
traffic and register use, not op names, so that what was learned of one kernel holds for
others. A shape [c] means one number per tiling, [c, n] a row of n numbers per tiling.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from meshwright.features.tune.iree.kernel import CpuKernel, Operand
from meshwright.features.tune.iree.space import (
    is_peeled,
    lane_loop,
    row_loops,
    window_loops,
)
from meshwright.features.tune.iree.tiling import Tiling

Floats = NDArray[np.float64]

NUM_FEATURES = 52
_NUM_FIXED = 19
_VECTOR_BYTES = 32
"""Bytes of an AVX2 register. On CPUs with wider ones, only a logarithm is shifted."""
_SLOW = ("tanh", "exp", "erf", "log", "pow", "sin", "cos", "divf", "sqrt")


def tile_rows(kernel: CpuKernel, tilings: Sequence[Tiling]) -> Floats:
    """Features of tilings [c, `NUM_FEATURES`], one row per tiling."""
    sizes = np.array([loop.size for loop in kernel.loops], float)
    tiles = _Tiles(kernel, tilings)
    columns = [
        *_shares(kernel, tiles, sizes),
        *_rests(kernel, tiles, sizes),
        *_registers(kernel, tiles),
        *_traffic(kernel, tiles, sizes),
    ]
    fixed = np.broadcast_to(_kernel_row(kernel, sizes), (len(tilings), _NUM_FIXED))
    return np.column_stack([*columns, fixed])


class _Tiles:
    """Tile sizes [c, loops] of tilings; an untiled loop has its trip count.

    group: tile sizes of a workgroup, the part of the result that one call computes.
    vector: tile sizes of the innermost body. sums: whether each loop is summed over.
    """

    def __init__(self, kernel: CpuKernel, tilings: Sequence[Tiling]) -> None:
        sizes = np.array([loop.size for loop in kernel.loops], float)
        sums = np.array([loop.is_reduction for loop in kernel.loops])

        def whole(rows: list[tuple[int, ...]]) -> Floats:
            array = np.array(rows, float).reshape(len(tilings), len(sizes))
            return np.where(array == 0, sizes, np.minimum(array, sizes))

        self.group = whole([t.distribution for t in tilings])
        self.vector = np.where(
            sums,
            whole([t.reduction for t in tilings]),
            whole([t.parallel for t in tilings]),
        )
        self.sums = sums


def _shares(kernel: CpuKernel, tiles: _Tiles, sizes: Floats) -> list[Floats]:
    """Features [c] of the number of tiles, and of how well tile sizes divide loops."""
    result = ~tiles.sums
    groups = np.ceil(sizes / tiles.group)
    steps = np.ceil(tiles.group / tiles.vector)
    waste = groups * tiles.group / sizes
    rest = steps * tiles.vector / tiles.group
    return [
        np.log2(groups[:, result]).sum(axis=1),
        np.log2(steps[:, result]).sum(axis=1),
        np.log2(steps[:, tiles.sums]).sum(axis=1),
        np.log2(waste[:, result]).sum(axis=1),
        np.log2(rest).sum(axis=1),
        (tiles.group[:, result] % tiles.vector[:, result] != 0)
        .any(axis=1)
        .astype(float),
        (sizes[result] % tiles.group[:, result] != 0).any(axis=1).astype(float),
    ]


def _rests(kernel: CpuKernel, tiles: _Tiles, sizes: Floats) -> list[Floats]:
    """Shares [c] of iterations that full vectors leave over, in three kinds of loop.

    They are the loop along the vector, the loops over rows, and the summed loops.
    Left-over iterations run with masks, or one element at a time.
    """
    whole = np.where(tiles.sums, sizes, tiles.group)
    vectors = sizes // whole * (whole // tiles.vector) + sizes % whole // tiles.vector
    rests = 1 - vectors * tiles.vector / sizes
    rows = row_loops(kernel)
    return [
        rests[:, lane_loop(kernel)],
        rests[:, rows].max(axis=1) if rows else np.zeros(len(rests)),
        rests[:, tiles.sums].max(axis=1),
    ]


def _registers(kernel: CpuKernel, tiles: _Tiles) -> list[Floats]:
    """Features [c] of the vector registers that the innermost loop body uses."""
    lane, rows = lane_loop(kernel), row_loops(kernel)
    windows, sums = window_loops(kernel), np.flatnonzero(tiles.sums)
    out = kernel.operands[-1].element_bytes
    lanes = tiles.vector[:, lane] * out / _VECTOR_BYTES
    across = np.prod(tiles.vector[:, rows], axis=1) if rows else np.ones(len(lanes))
    depth = np.prod(tiles.vector[:, sums], axis=1)
    used = np.ceil(lanes) * across
    inner = rows[-1] if rows else lane
    return [
        np.log2(lanes),
        np.log2(across),
        np.log2(depth),
        np.log2(used),
        np.maximum(0, np.log2(used / 12)),
        np.abs(np.log2(used / 12)),
        np.minimum(lanes, 1),
        np.log2(used * depth),
        (tiles.vector[:, inner] > 1).astype(float) * bool(windows),
        (lanes % 1 != 0).astype(float),
    ]


def _traffic(kernel: CpuKernel, tiles: _Tiles, sizes: Floats) -> list[Floats]:
    """Features [c] of the bytes of each operand that a workgroup and a loop body touch."""
    columns: list[Floats] = []
    whole = np.where(tiles.sums, sizes, tiles.group)
    groups = np.prod(np.ceil(sizes / tiles.group)[:, ~tiles.sums], axis=1)
    loads = np.zeros(len(whole))
    moved = np.zeros(len(whole))
    for operand in kernel.operands:
        in_group, in_body = _bytes(operand, whole), _bytes(operand, tiles.vector)
        columns += [
            np.log2(in_group),
            np.log2(in_body),
            np.log2(_run(operand, tiles.vector)),
        ]
        moved += in_group * groups
        loads += in_body
    products = np.prod(tiles.vector, axis=1)
    needed = sum(_bytes(operand, sizes[None])[0] for operand in kernel.operands)
    columns += [
        np.log2(sum(2.0**c for c in columns[::3])),
        np.log2(moved / needed),
        np.log2(products / loads),
        np.log2(np.prod(whole, axis=1)),
    ]
    return columns


def _bytes(operand: Operand, tile: Floats) -> Floats:
    """Bytes [c] of an operand that one tile touches.

    tile: tile sizes [c, loops].
    """
    touched = np.full(len(tile), operand.element_bytes)
    for dim, size in zip(operand.index, operand.shape, strict=True):
        span = 1 + sum(stride * (tile[:, loop] - 1) for loop, stride in dim)
        touched = touched * np.minimum(span, size)
    return touched


def _run(operand: Operand, tile: Floats) -> Floats:
    """Number [c] of an operand's elements in a tile that are contiguous in memory."""
    run = np.ones(len(tile))
    for loop, stride in operand.index[-1] if operand.index else ():
        run = run + (tile[:, loop] - 1 if stride == 1 else 0)
    return run


def _kernel_row(kernel: CpuKernel, sizes: Floats) -> Floats:
    """Features [19] that depend on the kernel alone, not on its tiling."""
    sums = np.array([loop.is_reduction for loop in kernel.loops])
    lane, rows, windows = lane_loop(kernel), row_loops(kernel), window_loops(kernel)
    first, second, _ = kernel.operands
    after = re.findall(r"\w+", kernel.epilogue)
    channels = [i for i, adds in enumerate(sums) if adds and i not in windows]
    strides = [s for o in kernel.operands for dim in o.index for _, s in dim]
    return np.array(
        [
            math.log2(np.prod(sizes[~sums])),
            math.log2(np.prod(sizes[sums])),
            math.log2(sizes[lane]),
            math.log2(np.prod(sizes[rows])) if rows else 0.0,
            math.log2(np.prod(sizes[channels])) if channels else 0.0,
            math.log2(first.element_bytes),
            math.log2(kernel.operands[-1].element_bytes),
            bool(windows),
            not channels,
            not rows,
            is_peeled(kernel),
            "Conv" in kernel.pipeline,
            max(strides) - 1,
            _is_last(first, lane),
            _is_last(second, lane),
            _is_last(first, channels[-1]) if channels else 0,
            _is_last(second, channels[-1]) if channels else 0,
            len(after),
            sum(any(slow in name for slow in _SLOW) for name in after),
        ],
        float,
    )


def _is_last(operand: Operand, loop: int) -> bool:
    """Whether a loop runs along the contiguous dim of an operand."""
    return bool(operand.index) and any(each == loop for each, _ in operand.index[-1])
