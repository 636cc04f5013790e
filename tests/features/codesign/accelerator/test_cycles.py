"""Cycles of products in tiles, against the folds run one by one."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from meshwright.codesign import accelerator as acc
from meshwright.features.codesign.accelerator.mapping.folds import (
    Extents,
    Split,
    cycles_of,
    least_tile,
)
from meshwright.features.codesign.accelerator.mapping.tiled_cycles import array_run
from meshwright.features.codesign.accelerator.mapping.tiles import (
    LoopTiling,
    Pace,
    Sizes,
    best_tiling,
)

CHIP = acc.Design.load("tpu-v4i").changed(pes=(1, 1)).chip
ORDERS = ("mnk", "mkn", "nmk", "nkm", "kmn", "knm")
STREAMED = {"weight": "m", "input": "n", "output": "k"}


def spans(start, end, step):
    return [(low, min(low + step, end)) for low in range(start, end, step)]


def loop_nest(spaces, tile, order):
    """The tiles of a box, as spans by dim, in the order of the loops."""
    cut = [spans(*spaces["mnk".index(d)], tile["mnk".index(d)]) for d in order]
    for place in itertools.product(*cut):
        found = dict(zip(order, place, strict=True))
        yield [found[d] for d in "mnk"]


def folds_run(dims, split, chip, outer, inner):
    """What stays and what streams, fold by fold, on the PE with the largest part."""
    rows_columns = dict(zip("mnk", least_tile(chip), strict=True))
    streamed = STREAMED[chip.dataflow]
    still = [d for d in "mnk" if d != streamed]
    whole = [(0, d) for d in dims]
    boxes = [whole] if outer is None else loop_nest(whole, outer.tile, outer.order)
    run = []
    for box in boxes:
        parts = (split.m, split.n, 1)
        mine = [
            (low, low + math.ceil((high - low) / p))
            for (low, high), p in zip(box, parts, strict=True)
        ]
        for tile in loop_nest(mine, inner.tile, inner.order):
            by_dim = dict(zip("mnk", tile, strict=True))
            low, high = by_dim[streamed]
            cuts = [spans(*by_dim[d], rows_columns[d]) for d in still]
            sizes = dict(zip("mnk", inner.tile, strict=True))
            is_one = all(sizes[d] <= rows_columns[d] for d in still)
            for block in itertools.product(*cuts):
                if run and run[-1][0] == block and is_one:
                    run[-1] = (block, run[-1][1] + high - low)
                else:
                    run.append((block, high - low))
    return run


def cycles_one_by_one(run, chip):
    """Cycles of folds on an array: each starts as what it needs and the array are ready."""
    rows, columns = chip.array
    load = 0 if chip.dataflow == "output" else rows
    if not chip.preloads:
        seen, cycles = set(), 0
        for block, length in run:
            returning = rows if chip.dataflow == "output" and block in seen else 0
            seen.add(block)
            cycles += load + returning + rows + columns + length - 2
        return cycles
    start, before = load, None
    for _, length in run:
        if before is not None:
            start += max(before, rows)
        before = length
    return start + rows + columns + before - 2


@pytest.mark.parametrize("dataflow", ["weight", "output", "input"])
@pytest.mark.parametrize("preloads", [0, 1])
def test_cycles_of_tiles_are_those_of_their_folds_one_by_one(dataflow, preloads):
    random = np.random.default_rng(0)
    for trial in range(150):
        array = tuple(int(n) for n in random.integers(1, 6, 2))
        chip = replace(CHIP, array=array, dataflow=dataflow, preloads=preloads)
        dims = tuple(int(n) for n in random.integers(1, 20, 3))
        split = Split(1, *(int(n) for n in random.integers(1, 4, 2)))
        outer = (
            tuple(int(random.integers(1, d + 1)) for d in dims) if trial % 2 else dims
        )
        part = [
            math.ceil(t / p) for t, p in zip(outer, (split.m, split.n, 1), strict=True)
        ]
        inner = tuple(int(random.integers(1, p + 1)) for p in part)
        tilings = [
            LoopTiling(tile, str(random.choice(ORDERS)), (0, 0, 0, 0), 0)
            for tile in (outer, inner)
        ][0 if trial % 2 else 1 :]
        found = array_run(Extents(1, *dims), split, chip, tuple(tilings))
        run = folds_run(
            dims, split, chip, tilings[0] if trial % 2 else None, tilings[-1]
        )
        assert found.cycles == cycles_one_by_one(run, chip)
        assert found.cycles >= cycles_of(Extents(1, *dims).divided(split), chip)


def test_a_fold_that_streams_little_takes_as_long_as_the_next_one_loads():
    """Buffers of 8 rows: 4 tiles of 8, whose 16 folds each load 32 rows."""
    chip = replace(CHIP, array=(32, 32), preloads=1)
    tiling = LoopTiling((8, 128, 128), "mnk", (0, 0, 0, 0), 0)
    found = array_run(Extents(1, 32, 128, 128), Split(), chip, (tiling,))
    assert found.cycles == 32 + 63 * 32 + 32 + 32 + 8 - 2


def test_the_mapper_takes_tiles_that_hide_the_load():
    """Few rows with all of K would move the fewest bytes, but wait for each load."""
    design = acc.Design.load("tpu-v4i").changed(
        pes=(1, 1), array=(32, 32), preloads=1, number="int8", global_bytes=0,
        l1="shared", l1_bytes=(1 << 18,), dram_channels=1,
        dram_channel_bytes_per_s=1e12,
    )  # fmt: skip
    found = acc.map_product(design, m=384, n=768, k=768, dataflow="ws")
    assert found.cycles == 24 * 24 * 384 + 32 + 32 + 32 - 2
    assert found.stall_cycles == 0


@pytest.mark.parametrize("preloads", [0, 1])
def test_tiles_take_the_least_time_of_all(preloads):
    """Of all tiles of whole folds, orders and operands kept whole, by running each."""
    random = np.random.default_rng(2)
    for _ in range(12):
        chip = replace(CHIP, array=(2, 3), preloads=preloads)
        dims = tuple(int(n) for n in random.integers(1, 10, 3))
        m, n, k = dims
        room = (float(random.integers(40, 300)),)
        costs = tuple(float(c) for c in random.uniform(0, 0.2, 3))
        between = 0 if preloads else 2 * 2 + 3 - 2
        pace = Pace(0, least_tile(chip), 2, between, cycles_per_byte=costs)
        sizes = Sizes(dims, (2.0 * m * k, 2.0 * k * n, 2.0 * m * n, 4.0 * m * n))
        found = best_tiling(sizes, room, (1, 3, 2), pace, may_keep=False)
        if not isinstance(found, LoopTiling):
            continue
        least = min(
            time_of(tiling, dims, chip, costs) for tiling in all_tilings(sizes, room)
        )
        assert time_of(found, dims, chip, costs) == pytest.approx(least)


def all_tilings(sizes, room):
    """The tilings of whole folds that fit, by asking for each tile alone."""
    m, n, k = sizes.dims
    columns = [t for t in range(1, n + 1) if t % 3 == 0 or t == n]
    rows = [t for t in range(1, k + 1) if t % 2 == 0 or t == k]
    for tile in itertools.product(range(1, m + 1), columns, rows):
        for order in ORDERS:
            moved = moved_bytes(tile, order, sizes)
            if held(tile, sizes) <= room[0]:
                yield LoopTiling(tile, order, moved, 0)


def held(tile, sizes):
    pairs = ((0, 2, sizes.bytes[0]), (2, 1, sizes.bytes[1]), (0, 1, None))
    total = 0.0
    for a, b, size in pairs:
        if size is None:
            size = sizes.bytes[2] if tile[2] >= sizes.dims[2] else sizes.bytes[3]
        share = tile[a] * tile[b] / (sizes.dims[a] * sizes.dims[b])
        total += size * share * (1 if share == 1 else 2)
    return total


def moved_bytes(tile, order, sizes):
    """Bytes by operand, running the loops tile by tile."""
    inputs, weights, outputs, sums = sizes.bytes
    last, moved, seen = {}, [0.0, 0.0, 0.0, outputs], set()
    for box in loop_nest([(0, d) for d in sizes.dims], tile, order):
        m, n, k = (
            (high - low) / d for (low, high), d in zip(box, sizes.dims, strict=True)
        )
        for i, (key, size) in enumerate(
            ((box[0] + box[2], inputs * m * k), (box[2] + box[1], weights * k * n))
        ):
            moved[i] += size if last.get(i) != key else 0.0
            last[i] = key
        key = box[0] + box[1]
        if last.get(2) != key and key in seen:
            moved[2] += sums * m * n
            moved[3] += sums * m * n
        last[2] = key
        seen.add(key)
    return tuple(moved)


def time_of(tiling, dims, chip, costs):
    """Cycles of the folds, without the fill, or of the bytes."""
    run = folds_run(dims, Split(), chip, None, tiling)
    rows, columns = chip.array
    if chip.preloads:
        cycles = sum(max(length, rows) for _, length in run)
    else:
        cycles = sum(2 * rows + columns + length - 2 for _, length in run)
    inputs, weights, read, written = tiling.bytes
    wait = inputs * costs[0] + weights * costs[1] + (read + written) * costs[2]
    return max(cycles, wait)
