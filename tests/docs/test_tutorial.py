"""The tutorial runs, and everything that it asserts is true."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_tutorial_runs():
    done = subprocess.run(
        [sys.executable, str(ROOT / "docs" / "tutorial.py")],
        cwd=ROOT,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.endswith("all true\n")
