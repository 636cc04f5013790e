"""CPU seconds of the first call of a partitioned function, compared with `jax.jit`.

Each measurement is a fresh process that makes the arguments and the tactics, and then
times one call with its results awaited: `mw.partition(fn, mesh, tactics)(*args)` with all
further imports, or `jax.jit` with the in- and out-shardings of the same plan. The two
alternate, so that other work on the machine affects both. CPU seconds of all threads are
compared, since other work changes them less than wall seconds. The ratio of a program is
that of the least seconds over the rounds: other work only ever adds to them.

    python -m benchmarks partitioning first_call [--rounds 3] [--only linen]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.harness import ONLY, STORED, Options, benchmark, option

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
from rich.console import Console
from rich.progress import track
from rich.table import Table

import meshwright as mw

CONSOLE = Console()
MESH = {"data": 4, "model": 2}
PREFERRED = ("experts", "megatron")
"""Strategies that are preferred to the data-parallel ones, where a program has them."""

SMALL = {
    "dit": (16, 16, 128), "gru": (16, 16, 64), "vae": (8, 8, 16), "clip": (64,),
    "lora": (8, 32, 256, 512),
}  # fmt: skip
"""Sizes of programs of `benchmarks.strangers`, under data parallelism and FSDP: so small
that a step takes little of the first call."""

Case = tuple[Callable[..., Any], tuple[Any, ...], list[Any]]


def case_names() -> list[str]:
    """Names of all programs."""
    from tests.programs.catalogue import PROGRAMS

    return [*(p.name for p in PROGRAMS), *SMALL, "gpt tiny"]


def load_case(name: str) -> Case:
    """Function, arguments and tactics of a program; only its own library is imported."""
    if name in SMALL:
        from benchmarks import strangers
        from meshwright.app.check.sample import sample_arguments

        fn, args = getattr(strangers, name)(*SMALL[name])
        tactics = [mw.data_parallel("data"), mw.fsdp("data")]
        return fn, sample_arguments(fn, args, 0), tactics
    if name == "gpt tiny":
        from zoo import gpt

        fn, args = gpt.tiny()
        return fn, args, [mw.data_parallel("data", "batch.**"), mw.fsdp("data")]
    from tests.programs.catalogue import PROGRAMS, tactics_of

    (program,) = (p for p in PROGRAMS if p.name == name)
    fn, args = program.build()
    strategy = next((s for s in PREFERRED if s in program.strategies), "fsdp")
    return fn, args, tactics_of(strategy, program.inputs)


# -- one measurement, in a process of its own ------------------------------------------


def measure_once(name: str, side: str, folder: Path) -> None:
    """Print the CPU and wall seconds of a first call as JSON.

    side: "ours", which saves its plan afterwards, or "jit", which reads that plan.
    """
    fn, args, tactics = load_case(name)
    path = folder / "plan.json"
    jax.clear_caches()  # what making the arguments traced
    shardings = mw.Plan.load(path) if side == "jit" else None
    cpu_s, wall_s = time.process_time(), time.perf_counter()
    if shardings is None:
        result = mw.partition(fn, MESH, tactics)(*args)
    else:
        result = jitted(fn, args, shardings)(*args)
    jax.block_until_ready(result)
    print(json.dumps([time.process_time() - cpu_s, time.perf_counter() - wall_s]))
    if side == "ours" and not path.exists():
        mw.partition(fn, MESH, tactics).plan(*args).save(path)


def jitted(fn: Callable[..., Any], args: tuple[Any, ...], plan: mw.Plan) -> Any:
    """The function under `jax.jit` with the shardings of the plan."""
    ins = jax.tree.unflatten(jax.tree.structure(args), plan.in_shardings)
    outs = list(plan.out_shardings)

    def flat(*args: Any) -> list[Any]:
        return jax.tree.leaves(fn(*args))

    return jax.jit(flat, in_shardings=ins, out_shardings=outs)


# -- all of them -----------------------------------------------------------------------


def run_once(name: str, side: str, folder: Path) -> list[float]:
    """CPU and wall seconds of a first call in a fresh process."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.partitioning.first_call",
        "--one",
        name,
    ]
    # Bytecode is kept, as that of an installed package is.
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(
        [*command, "--side", side, "--folder", str(folder)],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{name}, {side}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def measure(name: str, rounds: int) -> dict[str, Any]:
    """One row: the least seconds of both sides, and their ratios."""
    with tempfile.TemporaryDirectory() as folder:
        found: dict[str, list[list[float]]] = {"ours": [], "jit": []}
        for _ in range(rounds):
            for side, times in found.items():
                times.append(run_once(name, side, Path(folder)))
    row: dict[str, Any] = {"program": name, "rounds": rounds}
    for i, clock in enumerate(("cpu", "wall")):
        least = {side: min(t[i] for t in times) for side, times in found.items()}
        row |= {f"{side}_{clock}_s": value for side, value in least.items()}
        row[f"{clock}_ratio"] = least["ours"] / least["jit"]
    return row


def summary(rows: list[dict[str, Any]]) -> dict[str, float]:
    """The median ratio over the programs, in CPU and in wall seconds."""
    return {
        key: statistics.median(row[key] for row in rows)
        for key in ("cpu_ratio", "wall_ratio")
    }


@benchmark(
    option("--rounds", type=int, default=3),
    ONLY,
    option("--resume", action="store_true", help="keep rows of the file"),
    option("--one", help=argparse.SUPPRESS),
    option("--side", help=argparse.SUPPRESS),
    option("--folder", type=Path, help=argparse.SUPPRESS),
    out=STORED,
)
def main(options: Options) -> None:
    """Measure, print a table, write JSON."""
    if options.one:
        measure_once(options.one, options.side, options.folder)
        return
    rows = json.loads(options.out.read_text())["rows"] if options.resume else []
    known = {row["program"] for row in rows}
    names = [n for n in case_names() if options.only in n and n not in known]
    for name in track(names, "measuring", console=CONSOLE, transient=True):
        rows.append(measure(name, options.rounds))
        found = {"jax": jax.__version__, **summary(rows), "rows": rows}
        options.save(found)
    table = Table("program", "ours CPU s", "jit CPU s", "ratio", "ratio of wall time")
    for row in rows:
        cells = row["ours_cpu_s"], row["jit_cpu_s"], row["cpu_ratio"], row["wall_ratio"]
        table.add_row(row["program"], *(f"{cell:.2f}" for cell in cells))
    CONSOLE.print(table)
    CONSOLE.print(f"{len(rows)} programs, medians: {summary(rows)}")


if __name__ == "__main__":
    main()
