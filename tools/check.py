"""All checks of the project: `python tools/check.py [STEP ...]`, by default every step.

Prints one line per step, and the output of those that fail. Exit status 1 if any does.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
PYTHON = sys.executable
BIN = Path(PYTHON).parent

RUFF = (PYTHON, "-m", "ruff")
WORKERS = os.environ.get("WORKERS", "2")  # as `make WORKERS=4 check` sets it
CONCISE = "--output-format=concise"

STEPS: dict[str, tuple[str, ...]] = {
    "format": (*RUFF, "format", "--check", CONCISE, "."),
    "lint": (*RUFF, "check", CONCISE, "."),
    "types": (PYTHON, "-m", "pyright", "--pythonpath", PYTHON),
    "layers": (str(BIN / "lint-imports"), "--no-cache"),
    "rooms": (PYTHON, str(HERE / "rooms.py")),
    "language": (PYTHON, str(HERE / "language.py")),
    "budget": (PYTHON, str(HERE / "budget.py")),
    "docs": (PYTHON, str(HERE / "links.py")),
    "tests": (PYTHON, "-m", "pytest", "-q", "-n", WORKERS),
}
STATIC = tuple(name for name in STEPS if name != "tests")
FAST = tuple(name for name in STATIC if name != "types")


def run_step(name: str, root: Path) -> tuple[bool, str]:
    """Whether the step passes in the tree at `root`, and what it printed."""
    sources = os.pathsep.join((str(root / "src"), os.environ.get("PYTHONPATH", "")))
    done = subprocess.run(
        STEPS[name],
        cwd=root,
        env={**os.environ, "PYTHONPATH": sources.rstrip(os.pathsep)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode == 0, done.stdout


def check(names: tuple[str, ...], root: Path) -> bool:
    """True if all steps pass; a failing step does not keep the next from running."""
    failed: list[str] = []
    for name in names:
        start_s = time.monotonic()
        passed, output = run_step(name, root)
        verdict = "ok" if passed else "FAILED"
        print(f"{name:8} {verdict:8} {time.monotonic() - start_s:6.1f} s", flush=True)
        if not passed:
            failed.append(name)
            print(output, flush=True)
    if failed:
        print(f"failed: {', '.join(failed)}")
    return not failed


def main(arguments: list[str]) -> int:
    """Exit status of the steps named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("steps", nargs="*", metavar="STEP", help=", ".join(STEPS))
    parser.add_argument("--static", action="store_true", help="all but the tests")
    parser.add_argument("--fast", action="store_true", help="what pre-commit runs")
    parser.add_argument("--root", type=Path, default=HERE.parent, help="another tree")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.steps if name not in STEPS]
    if unknown:
        parser.error(f"no step {', '.join(unknown)}; there are {', '.join(STEPS)}")
    groups = (STATIC if options.static else ()) + (FAST if options.fast else ())
    names = (*options.steps, *groups) or tuple(STEPS)
    return 0 if check(tuple(dict.fromkeys(names)), options.root.resolve()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
