"""Slow test files that this run of CI has to run: `python tools/rotate.py FILE ...`.

The files are divided into three groups by a hash of their names, and the number of
commits says which group is due. Of three runs at consecutive numbers of commits, each file
is so due in exactly one, and no run has to remember another. Prints the due files on
stdout, and the files that wait, with the run that they wait for, on stderr.
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
    """The same files, from another one on each time the group is due.

    So no file is always the one that a run has no time for.
    """
    start = run // EVERY % max(len(files), 1)
    return files[start:] + files[:start]


def count_commits() -> int:
    """Number of commits on the way to the present one, merged branches as one each."""
    done = subprocess.run(
        ("git", "rev-list", "--count", "--first-parent", "HEAD"),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return int(done.stdout)


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
