"""Pipelines of `mw.pipeline` compared with those of NVIDIA's JaxPP, in one run.

    python -m benchmarks partitioning jaxpp_steps PYTHON --path SOURCE [--rounds 9]

PYTHON is an interpreter that has JaxPP; SOURCE is added to its `PYTHONPATH` if JaxPP is not
installed there, but a checkout. Both sides train the same decoder with the same stages,
schedule and microbatches on 8 virtual CPU devices, each in a process of its own, since no
release of JAX serves both. They take steps in turn, the one while the other waits. The
ratio is the median over the pairs (our steps per second over JaxPP's; above 1 is faster).
"""

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

from benchmarks import places
from benchmarks.harness import ONLY, STORED, Options, benchmark, option
from benchmarks.partitioning.pipeline_case import NUM_STEPS, Case

SCRIPT = Path(__file__).with_name("pipeline_case.py")
TOLERANCE = 1e-5
"""Error of a loss by rounding, of its value."""
CASES = (
    Case(128, 8, "1f1b"),
    Case(256, 8, "1f1b"),
    Case(256, 8, "eager-1f1b"),
    Case(256, 8, "interleaved", num_stages=8),
    Case(256, 8, "zb-h1"),
    Case(256, 16, "1f1b"),
)

Row = dict[str, Any]


class Side:
    """A process that runs one side's pipeline of a case; a context manager."""

    def __init__(
        self, side: str, python: str, path: Sequence[Path], case: Case
    ) -> None:
        self.process = subprocess.Popen(
            [python, str(SCRIPT), side, json.dumps(asdict(case))],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, path))},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.began: Row = self.answer()

    def answer(self) -> Any:
        """The next line that the process prints."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.process.args} ended: see its messages above")
        return json.loads(line)

    def step(self) -> float:
        """Seconds of one step."""
        assert self.process.stdin is not None
        print(file=self.process.stdin, flush=True)
        return self.answer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.process.communicate()


def error(began: Row) -> float:
    """The largest relative error of a loss, beside the step on one device."""
    pairs = zip(began["losses"], began["expected"], strict=True)
    return max(abs(a - b) / abs(b) for a, b in pairs)


def measure(case: Case, python: str, path: Path | None, num_rounds: int) -> Row:
    """The row of a case; two pairs of steps warm up."""
    here = [places.ROOT / "src"]
    there = [] if path is None else [path]
    with (
        Side("ours", sys.executable, here, case) as ours,
        Side("jaxpp", python, there, case) as jaxpp,
    ):
        sides = (ours, jaxpp)
        for side in sides:
            assert error(side.began) < TOLERANCE, side.began
        pairs = []
        for turn in range(num_rounds + 2):
            order = sides if turn % 2 else sides[::-1]
            taken = {side: side.step() for side in order}
            if turn >= 2:
                pairs.append((taken[ours], taken[jaxpp]))
    ours_s, jaxpp_s = (statistics.median(each) for each in zip(*pairs, strict=True))
    return asdict(case) | {
        "ours_s": ours_s,
        "jaxpp_s": jaxpp_s,
        "ratio": statistics.median(b / a for a, b in pairs),
        "ratios": sorted(round(b / a, 3) for a, b in pairs),
        "alone_s": {"ours": ours.began["alone_s"], "jaxpp": jaxpp.began["alone_s"]},
        "jax": {"ours": ours.began["jax"], "jaxpp": jaxpp.began["jax"]},
        "loss_error": {"ours": error(ours.began), "jaxpp": error(jaxpp.began)},
        "losses_compared": NUM_STEPS,
    }


HEAD = (
    "| width | schedule | stages on submeshes x replicas | microbatches "
    "| ours, steps/s | JaxPP, steps/s | ratio |\n|---|---|---|---|---|---|---|\n"
)


def table(rows: Sequence[Row]) -> str:
    """The rows in Markdown."""
    return HEAD + "".join(
        f"| {row['width']} | `{row['schedule']}` | {row['num_stages']} on "
        f"{row['num_submeshes']} x {8 // row['num_submeshes']} "
        f"| {row['num_microbatches']} | {1 / row['ours_s']:.3g} "
        f"| {1 / row['jaxpp_s']:.3g} | {row['ratio']:.2f} "
        f"({row['ratios'][0]:.2f} to {row['ratios'][-1]:.2f}) |\n"
        for row in rows
    )


@benchmark(
    option("python", help="an interpreter that has JaxPP"),
    option("--path", type=Path, help="folder of the package jaxpp"),
    option("--rounds", type=int, default=9),
    ONLY,
    out=STORED,
)
def main(options: Options) -> None:
    """Measure cases that are not stored yet, print the table, write JSON after each."""
    rows: dict[str, Row] = options.stored({})
    for case in CASES:
        if case.name in rows or options.only not in case.name:
            continue
        rows[case.name] = measure(case, options.python, options.path, options.rounds)
        print(f"{case.name}: ratio {rows[case.name]['ratio']:.2f}", flush=True)
        options.save(rows)
    print(table([*rows.values()]))


if __name__ == "__main__":
    main()
