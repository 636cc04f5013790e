"""Cycles against closed forms, bytes against enumeration, of products on a design."""

import itertools
import math

import numpy as np
import pytest

from meshwright.codesign import accelerator as acc
from meshwright.errors import AcceleratorError
from meshwright.features.codesign.accelerator.mapping.tiles import (
    Misfit,
    Sizes,
    best_tiling,
)

ONE = acc.Design.load("tpu-v4i").changed(
    pes=(1, 1), preloads=0, dram_channel_bytes_per_s=1e15, global_bytes_per_s=1e15
)


@pytest.mark.parametrize("dataflow", ["ws", "os", "is"])
def test_cycles_are_folds_times_the_cycles_of_one(dataflow):
    random = np.random.default_rng(0)
    for _ in range(40):
        rows, columns = (int(2 ** random.integers(2, 8)) for _ in range(2))
        m, n, k = (int(random.integers(1, 600)) for _ in range(3))
        design = ONE.changed(array=(rows, columns))
        found = acc.map_product(design, m=m, n=n, k=k, dataflow=dataflow)
        stays, streams, load = {
            "ws": ((k, n), m, rows),
            "os": ((m, n), k, 0),
            "is": ((k, m), n, rows),
        }[dataflow]
        folds = math.ceil(stays[0] / rows) * math.ceil(stays[1] / columns)
        assert found.cycles == folds * (load + rows + columns + streams - 2)


def test_preloading_hides_what_loads_behind_what_streams():
    still, ahead = ONE, ONE.changed(preloads=1)
    kwargs = {"m": 1000, "n": 512, "k": 512}
    folds = 16
    assert acc.map_product(still, **kwargs).cycles == folds * (2 * 128 + 128 + 998)
    assert acc.map_product(ahead, **kwargs).cycles == (2 * 128 + 128 + 998) + 15 * 1000


def fetched(tile, order, dims, sizes, kept):
    """Bytes that a loop nest fetches and writes, by running it tile by tile.

    kept: number of the operand that stays whole.
    """
    trips = [math.ceil(d / t) for d, t in zip(dims, tile, strict=True)]
    inputs, weights, outputs, sums = sizes
    held = {"a": None, "b": None, "c": None}
    seen, total = set(), sizes[kept] if kept in (0, 1) else 0.0

    def extent(dim, index):
        return min(tile[dim], dims[dim] - index * tile[dim])

    ranges = [range(trips["mnk".index(dim)]) for dim in order]
    for place in itertools.product(*ranges):
        index = dict(zip(order, place, strict=True))
        i, j, p = index["m"], index["n"], index["k"]
        m, n, k = extent(0, i), extent(1, j), extent(2, p)
        if held["a"] != (i, p) and kept != 0:
            held["a"] = (i, p)
            total += inputs * m * k / (dims[0] * dims[2])
        if held["b"] != (p, j) and kept != 1:
            held["b"] = (p, j)
            total += weights * k * n / (dims[1] * dims[2])
        if held["c"] != (i, j) and kept != 2:
            held["c"] = (i, j)
            share = m * n / (dims[0] * dims[1])
            # Sums that come back are read, and were written before.
            total += 2 * sums * share if (i, j) in seen else 0.0
            seen.add((i, j))
    return total + outputs


def held_bytes(tile, dims, sizes, kept):
    """Bytes of the tiles, twice for an operand of which there are several.

    kept: number of the operand that stays whole.
    """
    pairs = ((0, 2, sizes[0]), (2, 1, sizes[1]), (0, 1, None))
    found = []
    for i, (a, b, size) in enumerate(pairs):
        if size is None:
            size = sizes[2] if tile[2] >= dims[2] else sizes[3]
        share = tile[a] * tile[b] / (dims[a] * dims[b])
        found.append(size if i == kept else size * share * (1 if share == 1 else 2))
    return found


def test_bytes_are_the_least_of_all_tiles_and_orders():
    random = np.random.default_rng(1)
    for trial in range(40):
        dims = tuple(int(n) for n in random.integers(1, 8, 3))
        m, n, k = dims
        sizes = (2.0 * m * k, 2.0 * k * n, 2.0 * m * n, 4.0 * m * n)
        room = (float(random.integers(8, 200)),)
        if trial % 2:
            room = tuple(float(x) for x in random.integers(8, 100, 3))
        inside = trial % 3 == 0
        found = best_tiling(Sizes(dims, sizes, sums_inside=inside), room, (1, 1, 1))
        lying = (*sizes[:2], sizes[3 if inside else 2], sizes[3])
        costs = [
            fetched(tile, order, dims, sizes, kept)
            for tile in itertools.product(*(range(1, d + 1) for d in dims))
            for kept in (None, 0, 1, 2)
            for held in [held_bytes(tile, dims, lying, kept)]
            if (sum(held) <= room[0] if len(room) == 1 else
                all(h <= r for h, r in zip(held, room, strict=True)))
            for order in ("mnk", "mkn", "nmk", "nkm", "kmn", "knm")
        ]  # fmt: skip
        if not costs:
            assert isinstance(found, Misfit)
        else:
            assert found.moved_bytes == pytest.approx(min(costs))


def test_sums_of_several_folds_lie_in_the_buffer():
    """A fold adds to the sums of the one before it, of 4 bytes each."""
    design = ONE.changed(
        l1="private", l1_bytes=(1 << 20, 1 << 20, 4 * 64 * 128),
        dram_channel_bytes_per_s=1e9, global_bytes=0,
    )  # fmt: skip
    one_fold = acc.map_product(design, m=512, n=128, k=128)
    assert one_fold.tilings["l1"].tile == (64, 128, 128)
    two_folds = acc.map_product(design, m=512, n=128, k=256)
    assert two_folds.tilings["l1"].tile == (32, 128, 256)


def test_a_buffer_that_is_too_small_is_named_with_what_it_lacks():
    small = ONE.changed(l1="private", l1_bytes=(1024, 1024, 1 << 20))
    with pytest.raises(AcceleratorError, match=r"buffer for weights lacks \d+ bytes"):
        acc.map_product(small, m=512, n=512, k=512)


def test_memory_moves_no_less_than_each_operand_once():
    found = acc.map_product(acc.Design.load("tpu-v3"), m=300, n=200, k=100)
    assert found.traffic_bytes["dram"] >= 2 * (300 * 100 + 100 * 200 + 300 * 200)
    assert found.energy_j == pytest.approx(sum(found.energies_j.values()))


@pytest.mark.parametrize(
    "extents", [{"m": 0, "n": 1, "k": 1}, {"m": 1, "n": -2, "k": 1}]
)
def test_extents_below_one_are_refused(extents):
    with pytest.raises(AcceleratorError, match="wanted 1 or more"):
        acc.map_product(ONE, **extents)


@pytest.mark.parametrize("extent", [1.5, float("nan"), "3", None])
def test_extents_that_are_no_whole_numbers_are_refused(extent):
    with pytest.raises(AcceleratorError, match="wanted 1 or more, whole"):
        acc.map_product(ONE, m=extent, n=1, k=1)


@pytest.mark.parametrize(("level", "sizes"), [
    ("L1 buffer for weights", {"l1": "private", "l1_bytes": (4096, 1, 4096)}),
    ("L1 memory", {"l1": "shared", "l1_bytes": (1, 1, 1)}),
    ("global memory", {"global_bytes": 8, "global_bytes_per_s": 1e9}),
])  # fmt: skip
def test_the_memory_that_is_too_small_is_named_by_its_level(level, sizes):
    small = acc.Design.load("tpu-v3").changed(pes=(1, 1), **sizes)
    with pytest.raises(AcceleratorError, match=rf"its {level} lacks \d+ bytes"):
        acc.map_product(small, m=64, n=64, k=64)


def random_design(random):
    """A design with memories of any size and slow links between them."""

    def size(least, most):
        return int(np.exp(random.uniform(np.log(least), np.log(most))))

    return acc.Design.load("tpu-v3").changed(
        pes=(size(1, 40), size(1, 40)),
        array=(size(1, 128), size(1, 128)),
        dataflow=str(random.choice(["weight", "output", "input"])),
        preloads=int(random.integers(2)),
        number="int8",
        l1=str(random.choice(["private", "shared"])),
        l1_bytes=tuple(size(4096, 1 << 20) for _ in range(3)),
        global_bytes=int(random.choice([0, size(1 << 17, 1 << 28)])),
        global_bytes_per_s=10 ** random.uniform(9, 13),
        dram_channel_bytes_per_s=10 ** random.uniform(9, 11),
    )


def test_more_pes_and_larger_memories_never_slow_a_product():
    random = np.random.default_rng(4)
    for _ in range(60):
        design = random_design(random)
        extents = dict(zip("mnk", random.integers(1, 400, 3).tolist(), strict=True))
        chip = design.chip
        before = acc.map_product(design, **extents)
        for change in (
            {"pes": (chip.pes[0] + 1, chip.pes[1])},
            {"pes": (2 * chip.pes[0], chip.pes[1])},
            {"l1_bytes": tuple(int(1.5 * each) for each in chip.l1_bytes)},
            {"l2_bytes": 65536},
            {"global_bytes": min(1 << 28, 2 * chip.global_bytes)},
        ):
            after = acc.map_product(design.changed(**change), **extents)
            slower = after.cycles + after.stall_cycles
            assert slower <= 1.01 * (before.cycles + before.stall_cycles), (
                design.chip, change, extents,
            )  # fmt: skip
