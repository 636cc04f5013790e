"""The portfolio of allocation searches beside the one that CP-SAT guides.

    python -m benchmarks allocation guided_allocation FOLDER --seconds 4 --out FILE

FOLDER has MiniMalloc's files, whose names end in the capacity: A.1048576.csv. The other
problems are every 25th of the 500 generated ones of `allocate.py`, at their
known capacity. Both searches run on one thread for the same CPU seconds, without the
greedy packings. Finished problems are kept in `--out`.
"""

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.allocation.allocation_instances import known_packing
from benchmarks.harness import REQUIRED, Options, benchmark, option
from meshwright.features.allocate import Buffer, allocate, read_buffers
from meshwright.features.allocate.canonical.packing_state import FitVerdict
from meshwright.features.allocate.guided.guided import GuidedSearch
from meshwright.features.allocate.problem.packing_check import faults
from meshwright.features.allocate.problem.sections import columns_of
from meshwright.features.allocate.solve import METHODS

_EVERY, _GENERATED = 25, 500


@benchmark(
    option("folder", type=Path),
    option("--seconds", type=float, default=4.0),
    out=REQUIRED,
    seed=0,
)
def main(chosen: Options) -> None:
    """Print a row per problem, with the outcome of both searches."""
    rows: dict[str, Any] = chosen.stored({"rows": {}})["rows"]
    allocate([(0, 2, 1), (1, 3, 1), (0, 3, 1), (2, 4, 2)], 4)  # compiles the search
    for name, buffers, capacity in _problems(chosen.folder):
        if name in rows:
            continue
        rows[name] = {"buffers": len(buffers)} | {
            method: _result(method, buffers, capacity, chosen.seconds, chosen.seed)
            for method in METHODS
        }
        kept = {"cpu_seconds": chosen.seconds, "seed": chosen.seed, "rows": rows}
        chosen.save(kept)
    for line in _table(rows):
        print(line)


def _problems(folder: Path) -> Iterator[tuple[str, Sequence[Buffer], int]]:
    for file in sorted(folder.glob("*.csv")):
        capacity = int(file.suffixes[0][1:])
        if capacity > 1000:  # the other file is an example of five buffers
            yield file.stem, read_buffers(file), capacity
    for seed in range(0, _GENERATED, _EVERY):
        buffers, _, capacity = known_packing(20 + seed * 480 // (_GENERATED - 1), seed)
        yield f"generated {seed}", buffers, capacity


def _result(
    method: str, buffers: Sequence[Buffer], capacity: int, seconds: float, seed: int
) -> dict[str, Any]:
    """Outcome, nodes and CPU seconds of a search; its packing is checked."""
    free = [b for b in buffers if b.offset is None and b.size]
    fixed = [b for b in buffers if b.offset is not None and b.size]
    begin_s = time.process_time()
    search = METHODS[method](columns_of((*free, *fixed)), capacity, seed)
    verdict = FitVerdict.OPEN
    with ThreadPoolExecutor(1) as pool:
        for latest in search.rounds(pool, None):
            verdict = latest
            if time.process_time() - begin_s > seconds:
                break
    row: dict[str, Any] = {
        "outcome": verdict.name.lower(),
        "nodes": search.nodes,
        "cpu_s": round(time.process_time() - begin_s, 2),
    }
    if verdict is FitVerdict.FOUND:
        offsets = [*search.offsets(), *(b.offset or 0 for b in fixed)]
        found = list(faults((*free, *fixed), offsets, capacity))
        assert not found, found
    if isinstance(search, GuidedSearch):
        row |= {"minor": search.minor, "major": search.major}
    return row


def _table(rows: dict[str, Any]) -> Iterator[str]:
    yield (
        "| problem | buffers | portfolio | nodes | CPU s | guided | nodes | CPU s | "
        "minor, major backtracks |"
    )
    yield "|---|---|---|---|---|---|---|---|---|"
    for name, row in rows.items():
        cells = [name, row["buffers"]]
        for method in METHODS:
            cells += [row[method][key] for key in ("outcome", "nodes", "cpu_s")]
        cells.append(f"{row['guided']['minor']}, {row['guided']['major']}")
        yield f"| {' | '.join(map(str, cells))} |"


if __name__ == "__main__":
    main()
