"""Heights and times of allocators: MiniMalloc's suite and generated known packings.

    python -m benchmarks.allocate FOLDER --generated 500 --seconds 10

FOLDER has MiniMalloc's files, whose names end in the capacity: A.1048576.csv.
"""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.allocation_instances import known_packing
from meshwright.search.allocation import Allocation, Buffer, allocate, read_buffers
from meshwright.search.allocation.check import faults
from meshwright.search.allocation.greedy import ORDERS, greedy, height_of


def main() -> None:
    """Print a row per instance of the suite, and one per allocator of the generated."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--generated", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=10.0)
    chosen = parser.parse_args()
    if chosen.folder is not None:
        _suite(chosen.folder, chosen.seconds)
    if chosen.generated:
        _generated(chosen.generated, chosen.seconds)


def _suite(folder: Path, seconds: float) -> None:
    print("| instance | buffers | outcome | nodes | s | best greedy / capacity |")
    print("|---|---|---|---|---|---|")
    for file in sorted(folder.glob("*.csv")):
        capacity = int(file.suffixes[0][1:])
        buffers = read_buffers(file)
        answer = allocate(buffers, capacity, seconds=seconds)
        _require_packing(answer)
        least = min(height_of(buffers, greedy(buffers, o)) for o in ORDERS)
        print(
            f"| {file.stem} | {len(buffers)} | {answer.outcome} | {answer.nodes} | "
            f"{answer.seconds:.2f} | {least / capacity:.3f} |",
            flush=True,
        )


def _generated(number: int, seconds: float) -> None:
    """Heights over the known capacity, and how many reach it."""
    ratios: dict[str, list[float]] = {}
    times: dict[str, list[float]] = {}
    for seed in range(number):
        buffers, _, capacity = known_packing(
            20 + seed * 480 // max(1, number - 1), seed
        )
        for name, (height, spent_s) in _heights(buffers, capacity, seconds).items():
            ratios.setdefault(name, []).append(height / capacity)
            times.setdefault(name, []).append(spent_s)
    print(
        f"| allocator ({number} generated) | within capacity | mean | worst | mean s |"
    )
    print("|---|---|---|---|---|")
    for name, found in ratios.items():
        within = sum(ratio <= 1 for ratio in found)
        print(
            f"| {name} | {within} | {np.mean(found):.4f} | {max(found):.3f} | "
            f"{np.mean(times[name]):.3f} |"
        )


def _heights(
    buffers: Sequence[Buffer], capacity: int, seconds: float
) -> dict[str, tuple[int, float]]:
    """Height and seconds of each allocator; the best greedy one if ours finds nothing."""
    rows: dict[str, tuple[int, float]] = {}
    for order in ORDERS:
        for best_fit in (False, True):
            start = time.perf_counter()
            height = height_of(buffers, greedy(buffers, order, best_fit))
            spent_s = time.perf_counter() - start
            rows[f"{'best' if best_fit else 'first'} fit by {order}"] = height, spent_s
    least = min(height for height, _ in rows.values())
    answer = allocate(buffers, capacity, seconds=seconds)
    _require_packing(answer)
    rows["ours"] = answer.height or least, answer.seconds
    return rows


def _require_packing(answer: Allocation) -> None:
    if answer.offsets is not None:
        found = list(faults(answer.buffers, answer.offsets, answer.capacity))
        assert not found, found


if __name__ == "__main__":
    main()
