"""Folders that benchmarks read from and write to."""

from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
DATA = HERE / "data"
MACHINES = HERE / "machines"
RESULTS = HERE / "results"
