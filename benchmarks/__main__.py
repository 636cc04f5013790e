"""One runner for all benchmarks: `python -m benchmarks AREA [SCRIPT] [options]`.

Without arguments it lists areas and scripts. Without a script it runs all scripts of the
area, one after another, with the same options. A script's `--help` shows its options.
"""

import subprocess
import sys
import time
from collections.abc import Sequence

from benchmarks.index import Script, areas, scripts_of


def main(arguments: Sequence[str]) -> int:
    """List or run what the arguments say; exit status 1 if a script failed."""
    if not arguments or arguments[0] in {"-h", "--help"}:
        print(__doc__.strip())
        for area in areas():
            show(area)
        return 0
    area, *rest = arguments
    if area not in areas():
        return refuse(f"no area {area!r}; there are {', '.join(areas())}")
    scripts = {script.name: script for script in scripts_of(area)}
    if "--help" in rest[:1] or "-h" in rest[:1]:
        show(area)
        return 0
    if not rest or rest[0].startswith("-"):
        return run(list(scripts.values()), rest)
    if rest[0] not in scripts:
        return refuse(f"no script {rest[0]!r} in {area}; it has {', '.join(scripts)}")
    return run([scripts[rest[0]]], rest[1:])


def show(area: str) -> None:
    """Print an area's line and one for each of its scripts."""
    print(f"\n{area}: {areas()[area]}")
    for script in scripts_of(area):
        print(f"  {script.name:20} {script.summary}")


def run(scripts: Sequence[Script], options: Sequence[str]) -> int:
    """Run scripts in processes of their own, and say how far we are and how long it took.

    Own processes: many scripts set flags of XLA before they import JAX.
    """
    status = 0
    for number, script in enumerate(scripts, 1):
        label = f"[{number}/{len(scripts)}] {script.area} {script.name}"
        print(f"{label}: {script.summary}", file=sys.stderr, flush=True)
        start_s = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-m", script.module, *options], check=False
        )
        seconds = time.perf_counter() - start_s
        outcome = "done" if done.returncode == 0 else f"status {done.returncode}"
        print(f"{label}: {outcome}, {seconds:.1f} s", file=sys.stderr, flush=True)
        status = status or done.returncode
    return status


def refuse(message: str) -> int:
    """Print what was wrong; exit status 2."""
    print(f"python -m benchmarks: {message}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
