"""Compilation of the cases of `tpu_cases.py` by the real TPU compiler, without TPU.

    python -m benchmarks tpu tpu_compiler [--only TEXT] [--full | --unseen | --strangers]
        [--keep DIR] [--out FILE]

Resumable: cases in the results file are not compiled again. Needs `meshwright[tpu]`.
`benchmarks.tpu.tpu_accuracy` compares the results with our predictions.
"""

from __future__ import annotations

import gzip
import os
import shutil
import tempfile
import time
from collections import defaultdict
from importlib.metadata import version
from pathlib import Path

from benchmarks import places
from benchmarks.harness import ONLY, Options, benchmark, option

os.environ.setdefault("JAX_PLATFORMS", "cpu")

from benchmarks.tpu.tpu_cases import (
    Case,
    cases,
    full_cases,
    strange_cases,
    unseen_cases,
)
from meshwright.errors import CompilerError
from meshwright.machine import load_machine
from meshwright.run.compilers.confirm import Compiled, DeviceStep, confirm
from meshwright.run.compilers.hlo import HloCollective

RESULTS = places.RESULTS


def compile_case(case: Case, full: bool, folder: Path) -> Compiled:
    """The compiler's report on a case."""
    decided = case.plan().decided
    assert decided is not None, "a plan that was made here has its program"
    captured = decided.captured
    step = DeviceStep(decided.lowered, captured.avals, captured.donated)
    machine = load_machine(case.chip, case.program.devices)
    return confirm(step, machine, full, timeout_s=1200, folder=folder)


def row_of(compiled: Compiled) -> dict[str, object]:
    """The figures of a report that are stored."""
    return {
        "peak_bytes": compiled.peak_bytes,
        "fits": compiled.fits,
        "flops": compiled.flops,
        "cycles": compiled.cycles,
        "memory": dict(compiled.memory or {}),
        "collectives": _by_kind(compiled.collectives),
        "compile_s": round(compiled.compile_s, 1),
    }


def _by_kind(collectives: tuple[HloCollective, ...]) -> dict[str, dict[str, float]]:
    """Executions, bytes and seconds; seconds only of collectives with an estimate."""
    kinds: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for each in collectives:
        told = kinds[each.kind]
        told["runs"] += each.runs
        told["bytes"] += each.runs * each.num_bytes
        if each.seconds:
            told["timed_bytes"] += each.runs * each.num_bytes
            told["seconds"] += each.runs * each.seconds
    return {kind: dict(told) for kind, told in kinds.items()}


def keep_files(folder: Path, place: Path) -> None:
    """Pack the compiler's text files and log into the folder."""
    place.mkdir(parents=True, exist_ok=True)
    dumped = (folder / "dump").glob("*optimizations*.txt")
    for path in (folder / "log", *folder.glob("compiled.hlo"), *dumped):
        name = path.name.split(".cl_")[-1]
        with path.open("rb") as source, gzip.open(place / f"{name}.gz", "wb", 3) as to:
            shutil.copyfileobj(source, to)


@benchmark(
    ONLY,
    (
        option("--full", action="store_true", help="generate code, for cycles"),
        option("--unseen", action="store_true", help="steps on other chips"),
        option("--strangers", action="store_true", help="none of the zoo's"),
    ),
    option("--keep", type=Path, help="folder for the compiler's files"),
)
def main(options: Options) -> None:
    """Compile what is missing, one case after another."""
    name, offered = "tpu_memory.json", cases
    if options.full:
        name, offered = "tpu_full.json", full_cases
    elif options.unseen:
        name, offered = "tpu_unseen.json", unseen_cases
    elif options.strangers:
        name, offered = "tpu_strangers.json", strange_cases
    options.out = options.out or RESULTS / name
    known = options.stored({"cases": {}})
    known["versions"] = {name: version(name) for name in ("jax", "libtpu")}
    wanted = [case for case in offered() if options.only in case.name]
    for number, case in enumerate(wanted, 1):
        if case.name in known["cases"]:
            continue
        start_s = time.perf_counter()
        with tempfile.TemporaryDirectory() as text:
            folder = Path(text)
            try:
                row = row_of(compile_case(case, options.full, folder))
            except CompilerError as error:
                row = {"error": str(error)[-500:]}
            if options.keep is not None:
                keep_files(folder, options.keep / case.name.replace("/", "__"))
        known["cases"][case.name] = row
        options.save(known)
        seconds = time.perf_counter() - start_s
        gib = row.get("peak_bytes", 0) / 2**30
        told = row.get("error") or f"{gib:.2f} GiB, fits: {row['fits']}"
        print(
            f"{number}/{len(wanted)} {seconds:6.1f} s {case.name}: {told}", flush=True
        )


if __name__ == "__main__":
    main()
