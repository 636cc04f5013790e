"""Memory of found plans, as predicted and as the real TPU compiler assigns it.

Ten programs (`found_programs.py`) are planned by a search in five settings of v5e each:
4, 8 and 16 chips, 2 x 4 chips, and 8 chips with 0.7 of the memory that the free plan takes.
The state is donated, as found plans assume. Needs `meshwright[tpu]`.

    python -m benchmarks tpu found_memory [--only TEXT] [--budget 3] [--predict]

Resumable: cases in the results file are not compiled again. With --predict, the plans in
the results file are predicted again, and nothing is compiled. Exit status 1 if fewer than
nine tenths are within 10 %, or one is 15 % too low.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jax

import meshwright as mw
from benchmarks.harness import ONLY, STORED, Options, benchmark, option
from benchmarks.tpu.found_programs import PROGRAMS
from benchmarks.tpu.tpu_compiler import keep_files
from meshwright.app.plan import Plan
from meshwright.errors import CompilerError, PlanError

SETTINGS: dict[str, tuple[int, dict[str, Any]]] = {
    "4 chips": (4, {}),
    "8 chips": (8, {}),
    "16 chips": (16, {}),
    "2 x 4 chips": (8, {"mesh": {"data": 2, "model": 4}}),
    "8 chips, 0.7 of the memory": (8, {"memory": 0.7}),
}
"""Number of chips, and options of `autoplan`; memory is a share of the free plan's."""

CLOSE, TOO_LOW, SHARE = 0.10, 0.15, 0.9


def found_plans(name: str, budget_s: float, known: Any) -> Iterator[tuple[str, Plan]]:
    """Plans of a program that are not known yet, by case; none where nothing fits."""
    fn, args = PROGRAMS[name]()
    for setting, (chips, options) in SETTINGS.items():
        case = f"{name} | {setting}"
        if case in known:
            continue
        search = partial(
            mw.autoplan, fn, args, machine="tpu-v5e", chips=chips, budget_s=budget_s
        )
        chosen = dict(options)
        if "memory" in chosen:
            chosen["memory"] *= search().peak_memory_bytes
        try:
            yield case, search(**chosen)
        except PlanError as error:
            print(f"{case:48s} {error}", flush=True)


def row_of(plan: Plan, folder: Path) -> dict[str, Any]:
    """Predicted and compiled bytes of a plan, which is kept with the compiler's files."""
    folder.mkdir(parents=True)
    plan.save(folder / "plan.json")
    with tempfile.TemporaryDirectory() as text:
        told = plan.confirm("tpu", timeout_s=300, folder=text)
        keep_files(Path(text), folder)
    return {
        "mesh": str(plan.mesh),
        "predicted_bytes": told.predicted.peak_bytes,
        "compiled_bytes": told.compiled.peak_bytes,
        "compile_s": round(told.compile_s, 1),
    }


def predicted_again(name: str, folder: Path, chips: int) -> int:
    """Bytes that are predicted now for a plan that an earlier run kept."""
    fn, args = PROGRAMS[name]()
    plan = mw.partition(fn, mw.Plan.load(folder / "plan.json")).plan(*args)
    machine = mw.machine("tpu-v5e", chips=chips)
    return plan.on(machine, donate_state=True).peak_memory_bytes


def folder_of(root: Path, case: str) -> Path:
    """The folder of a case."""
    return root / case.replace(" ", "_")


@benchmark(
    ONLY,
    option("--budget", type=float, default=3.0),
    option("--keep", type=Path, default=Path("out/found_memory"), help="folder"),
    option("--predict", action="store_true", help="predict kept plans again"),
    out=STORED,
)
def main(options: Options) -> int:
    """Run the cases asked for, and print a line for each."""
    rows: dict[str, Any] = options.stored({"cases": {}})["cases"]
    for name in (name for name in PROGRAMS if options.only in name):
        if options.predict:
            _predict(name, rows, options)
        else:
            _compile(name, rows, options)
        options.save({"jax": jax.__version__, "cases": rows})
    errors = [_error(row) for row in rows.values()]
    close = sum(abs(error) <= CLOSE for error in errors)
    print(f"{close} of {len(errors)} within {CLOSE:.0%}, worst {min(errors):+.1%}")
    return int(close < SHARE * len(errors) or min(errors) < -TOO_LOW)


def _compile(name: str, rows: dict[str, Any], options: Options) -> None:
    for case, plan in found_plans(name, options.budget, rows):
        try:
            rows[case] = row_of(plan, folder_of(options.keep, case))
        except CompilerError as error:
            print(f"{case:48s} {error}", flush=True)
            continue
        print(_line(case, rows[case]), flush=True)
        options.save({"jax": jax.__version__, "cases": rows})


def _predict(name: str, rows: dict[str, Any], options: Options) -> None:
    for setting, (chips, _) in SETTINGS.items():
        case = f"{name} | {setting}"
        folder = folder_of(options.keep, case)
        if case in rows and folder.is_dir():
            before = _error(rows[case])
            rows[case]["predicted_bytes"] = predicted_again(name, folder, chips)
            print(_line(case, rows[case]), f"before {before:+.1%}", flush=True)


def _error(row: dict[str, Any]) -> float:
    return row["predicted_bytes"] / row["compiled_bytes"] - 1


def _line(case: str, row: dict[str, Any]) -> str:
    gib = row["compiled_bytes"] / 2**30
    return f"{case:48s} {row['mesh']:18} {gib:6.3f} GiB, {_error(row):+6.1%}"


if __name__ == "__main__":
    main()
