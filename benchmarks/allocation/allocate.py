"""Heights and times of allocators: MiniMalloc's suite and generated known packings.

    python -m benchmarks allocation allocate FOLDER --generated 500 --seconds 10

FOLDER has MiniMalloc's files, whose names end in the capacity: A.1048576.csv. With
`--omnimalloc PYTHON`, an interpreter that has omnimalloc, its allocators and CP-SAT are
run on the generated problems, too; those that search only on every `--every`th problem.
The others get twice the seconds, as ours gets them again for the lowest height if no
packing is within the capacity. The table has CPU seconds of all threads. Finished problems
are kept in `--out`.
"""

import json
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from benchmarks.allocation.allocation_instances import known_packing
from benchmarks.allocation.plain_packing import packed_by_cp_sat
from benchmarks.harness import Options, benchmark, option
from meshwright.features.allocate import Allocation, Buffer, allocate, read_buffers
from meshwright.features.allocate.greedy import ORDERS, greedy, height_of
from meshwright.features.allocate.problem.packing_check import faults

_EASIER = "ours, omnimalloc's problem"
"""Our packing of the problem that omnimalloc gets, without alignment, fixed or gaps."""

type Heights = dict[str, tuple[float, float]]
"""Height over the known capacity and CPU seconds, by allocator."""


@benchmark(
    option("folder", type=Path, nargs="?"),
    option("--generated", type=int, default=500),
    option("--seconds", type=float, default=10.0),
    option("--omnimalloc", type=Path, metavar="PYTHON"),
    option("--every", type=int, default=1),
)
def main(chosen: Options) -> None:
    """Print a row per instance of the suite, and one per allocator of the generated."""
    if chosen.folder is not None:
        _suite(chosen.folder, chosen.seconds)
    if chosen.generated:
        _generated(chosen)


def _suite(folder: Path, seconds: float) -> None:
    print("| instance | buffers | outcome | nodes | s | best greedy / capacity |")
    print("|---|---|---|---|---|---|")
    for file in sorted(folder.glob("*.csv")):
        capacity = int(file.suffixes[0][1:])
        buffers = read_buffers(file)
        begin_s = time.process_time()
        answer = allocate(buffers, capacity, seconds=seconds)
        spent_s = time.process_time() - begin_s
        _require_packing(answer)
        least = min(height_of(buffers, greedy(buffers, o)) for o in ORDERS)
        print(
            f"| {file.stem} | {len(buffers)} | {answer.outcome} | {answer.nodes} | "
            f"{spent_s:.2f} | {least / capacity:.3f} |",
            flush=True,
        )


def _generated(chosen: Options) -> None:
    rows: dict[str, Heights] = chosen.stored({"rows": {}})["rows"]
    allocate([(0, 2, 1), (1, 3, 1), (0, 3, 1), (2, 4, 2)], 4)  # compiles the search
    number = chosen.generated
    peer = None if chosen.omnimalloc is None else _start_peer(chosen.omnimalloc)
    for seed in sorted(range(number), key=lambda s: (s % chosen.every, s)):
        done = rows.setdefault(str(seed), {})
        num_buffers = 20 + seed * 480 // max(1, number - 1)
        buffers, _, capacity = known_packing(num_buffers, seed)
        seconds = 0.0 if seed % chosen.every else chosen.seconds
        found: Heights = {}
        if "ours" not in done:
            found |= _heights(buffers, capacity, chosen.seconds)
        if seconds and _EASIER not in done:
            found[_EASIER] = _ours(_without_limits(buffers), capacity, seconds)
        if peer is not None and "omnimalloc omni" not in done:
            found |= _of_others(buffers, capacity, 2 * seconds, peer)
        if not found:
            continue
        rows[str(seed)] = done | {
            name: (height / capacity, spent_s)
            for name, (height, spent_s) in found.items()
        }
        if chosen.out is not None:
            chosen.save({"table": list(_table(rows)), "rows": rows})
    for line in _table(rows):
        print(line)


def _table(rows: dict[str, Heights]) -> Iterator[str]:
    """How many problems each allocator packs into the known capacity, heights, times."""
    yield (
        f"| allocator ({len(rows)} generated) | problems | within capacity | "
        "mean height | worst | mean CPU s |"
    )
    yield "|---|---|---|---|---|---|"
    for name in max(rows.values(), key=len):
        found = [row[name] for row in rows.values() if name in row]
        heights = [height for height, _ in found]
        packed = [height for height in heights if np.isfinite(height)]
        mean, worst = (np.mean(packed), max(packed)) if packed else (np.nan, np.nan)
        yield (
            f"| {name} | {len(found)} | {sum(height <= 1 for height in heights)} | "
            f"{mean:.4f} | {worst:.3f} | {np.mean([s for _, s in found]):.3f} |"
        )


def _heights(buffers: Sequence[Buffer], capacity: int, seconds: float) -> Heights:
    """Heights of the greedy packings and of ours, in bytes."""
    rows: Heights = {}
    for order in ORDERS:
        for best_fit in (False, True):
            begin_s = time.process_time()
            height = height_of(buffers, greedy(buffers, order, best_fit))
            spent_s = time.process_time() - begin_s
            rows[f"{'best' if best_fit else 'first'} fit by {order}"] = height, spent_s
    rows["ours"] = _ours(buffers, capacity, seconds)
    return rows


def _ours(
    buffers: Sequence[Buffer], capacity: int, seconds: float
) -> tuple[float, float]:
    """Bytes of our packing, and CPU seconds.

    If there is none within the capacity, as much time again goes into the lowest one.
    """
    begin_s = time.process_time()
    answer = allocate(buffers, capacity, seconds=seconds)
    if answer.height is None:
        answer = allocate(buffers, seconds=seconds)
    _require_packing(answer)
    assert answer.height is not None
    return answer.height, time.process_time() - begin_s


def _without_limits(buffers: Sequence[Buffer]) -> list[Buffer]:
    """The easier problem that omnimalloc gets.

    It has neither alignment nor gaps: the parts of a buffer between gaps may lie apart,
    and nothing is aligned or fixed.
    """
    spans = [(*span, b.size) for b in buffers for span in b.spans if b.size]
    return [Buffer(str(i), *span) for i, span in enumerate(spans)]


def _start_peer(python: Path) -> subprocess.Popen[str]:
    """A process that answers one problem per line until its input ends."""
    script = Path(__file__).with_name("omnimalloc_heights.py")
    return subprocess.Popen(
        [str(python), str(script)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _of_others(
    buffers: Sequence[Buffer],
    capacity: int,
    seconds: float,
    peer: subprocess.Popen[str],
) -> Heights:
    """Heights of omnimalloc's allocators and CP-SAT in bytes; infinite without packing."""
    spans = [(b.lower, b.upper, b.size) for b in _without_limits(buffers)]
    assert peer.stdin is not None
    assert peer.stdout is not None
    print(json.dumps([spans, seconds]), file=peer.stdin, flush=True)
    answer = json.loads(peer.stdout.readline())
    rows = {f"omnimalloc {n}": (h, s) for n, (h, s) in answer.items()}
    if seconds:
        begin_s = time.process_time()
        offsets = packed_by_cp_sat(buffers, capacity, seconds)
        spent_s = time.process_time() - begin_s
        if offsets is None:
            rows["CP-SAT"] = np.inf, spent_s
        else:
            assert not list(faults(buffers, offsets, capacity))
            rows["CP-SAT"] = height_of(buffers, offsets), spent_s
    return rows


def _require_packing(answer: Allocation) -> None:
    if answer.offsets is not None:
        found = list(faults(answer.buffers, answer.offsets, answer.capacity))
        assert not found, found


if __name__ == "__main__":
    main()
