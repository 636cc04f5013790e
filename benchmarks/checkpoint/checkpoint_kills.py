"""Kills of a writer in the middle of saving: what restores afterwards.

    python -m benchmarks checkpoint checkpoint_kills [--hits 100] [--megabytes 64]

A process saves one state after another without a pause, and is killed with SIGKILL at a
random moment; after each kill the newest committed checkpoint is restored and compared bit
for bit. A kill has hit a save if it leaves an uncommitted one behind, or comes between a
commit and its announcement. Kills go on until so many have hit one. Resumable: kills that
are in the results file are not repeated.
"""

from __future__ import annotations

import os
import random
import tempfile
import time
from pathlib import Path

from benchmarks.harness import STORED, Options, benchmark, option

os.environ.setdefault("JAX_PLATFORMS", "cpu")

from tests.features.checkpoint.killing import kill_while_saving, require_newest_is_whole


def one_kill(directory: Path, megabytes: int, seed: int) -> dict[str, object]:
    """One writer, killed while it saves, and what restored after it.

    left: whether the kill left an uncommitted save behind. in_flight: whether the newest
    checkpoint is one that the writer had not yet announced as committed.
    """
    start = time.perf_counter()
    committed = kill_while_saving(directory, megabytes, random.Random(seed))
    left = any("tmp" in path.name for path in directory.iterdir())
    newest = require_newest_is_whole(directory, committed, megabytes)
    seconds = round(time.perf_counter() - start, 2)
    return {
        "seed": seed, "committed": committed, "newest": newest, "left": left,
        "in_flight": newest > committed, "seconds": seconds,
    }  # fmt: skip


def has_hit(row: dict[str, object]) -> bool:
    """Whether a kill came in the middle of a save."""
    return bool(row["left"]) or bool(row["in_flight"])


def summary(rows: list[dict[str, object]]) -> str:
    """The counts of all kills."""
    left = sum(bool(row["left"]) for row in rows)
    late = sum(bool(row["in_flight"]) for row in rows)
    return (
        f"{len(rows)} kills: the newest committed checkpoint restored bit for bit after "
        f"each. {sum(map(has_hit, rows))} hit a save: {left} left an uncommitted save "
        f"behind, {late} came between a commit and its announcement."
    )


@benchmark(
    option("--hits", type=int, default=100),
    option("--megabytes", type=int, default=64),
    out=STORED,
    seed=0,
)
def main(options: Options) -> None:
    """Kill, restore, and print the counts."""
    rows = options.stored([])
    with tempfile.TemporaryDirectory() as folder:
        while sum(map(has_hit, rows)) < options.hits:
            seed = options.seed + len(rows)
            rows.append(one_kill(Path(folder), options.megabytes, seed))
            options.save(rows)
            print(rows[-1], flush=True)
    print(summary(rows))


if __name__ == "__main__":
    main()
