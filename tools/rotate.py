"""Slow test files that this run of CI has to run: `python tools/rotate.py FILE ...`.

A hash of its name puts each file into one of three groups, and the number of commits
modulo three is the group that is due. Each file is due in exactly one of three runs at
consecutive numbers of commits, and no run has to remember another. The due files go to
stdout; the files that wait, and the run that they wait for, go to stderr.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from hashlib import sha256

EVERY = 3
SALT = "1"
"""Prefix of the hashed names; of the first ten it divides the files most evenly."""


def runs_until_due(file: str, run: int) -> int:
    """Number of runs that a file waits at run number `run`: 0 if it is due."""
    group = sha256(f"{SALT}{file}".encode()).digest()[0]
    return (group - run) % EVERY


def select(files: Iterable[str], run: int) -> dict[int, list[str]]:
    """Files by the number of runs that they wait, sorted by name."""
    waits: dict[int, list[str]] = {wait: [] for wait in range(EVERY)}
    for file in sorted(files):
        waits[runs_until_due(file, run)].append(file)
    return waits


def begin_elsewhere(files: list[str], run: int) -> list[str]:
    """The files in cyclic order, from another one each time that their group is due.

    The files that a run has no time for are therefore not always the same.
    """
    start = run // EVERY % max(len(files), 1)
    return files[start:] + files[:start]


def count_commits() -> int:
    """Number of commits up to the present one, a merged branch as one; 0 without git."""
    done = subprocess.run(
        ("git", "rev-list", "--count", "--first-parent", "HEAD"),
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    return int(done.stdout or 0)


def main(files: list[str]) -> int:
    """Print the due files, and on stderr those that wait."""
    run = count_commits()
    waits = select(files, run)
    print(f"run {run}: {len(waits[0])} of {len(files)} slow files due", file=sys.stderr)
    for wait in range(1, EVERY):
        for file in waits[wait]:
            print(f"waits for run {run + wait}: {file}", file=sys.stderr)
    print("\n".join(begin_elsewhere(waits[0], run)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
