"""The partitioned step compared with stock `jax.jit` and the same shardings.

Both run alternately on 8 virtual CPU devices, so that noise of the machine affects both.
The ratio of a case is the median over the pairs (ours over stock; below 1 is faster).
Programs: the tiny GPT under PartIR's schedules, and small train steps of public
libraries' models under the named tactics.

    python -m benchmarks partitioning step_speed [--rounds 15] [--only gpt]
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.harness import ONLY, STORED, Options, benchmark, option

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")

import jax
from rich.console import Console
from rich.progress import track
from rich.table import Table

import meshwright as mw
from tests.programs.catalogue import MESH, PROGRAMS, tactics_of
from zoo import gpt

CONSOLE = Console()
SCHEDULES = ("bp", "mp", "bp+mp", "bp+mp+z2", "bp+mp+z3", "bp+mp+z3+emb")

Case = tuple[str, Callable[..., Any], tuple[Any, ...], mw.Mesh, list[Any]]


def cases(is_light: bool = False) -> Iterator[Case]:
    """Name, function, arguments, mesh and tactics of every case."""
    mesh = mw.Mesh({"batch": 4, "model": 2})
    for name in SCHEDULES:
        fn, args = gpt.tiny()
        yield f"gpt tiny, {name}", fn, args, mesh, gpt.schedules[name]
    for program in PROGRAMS:
        if is_light and program.heavy:
            continue
        fn, args = program.build()
        for strategy in program.strategies:
            tactics = tactics_of(strategy, program.inputs)
            yield f"{program.name}, {strategy}", fn, args, MESH, tactics


def seconds(run: Callable[[], Any]) -> float:
    """Wall seconds of a call with its results awaited."""
    start = time.perf_counter()
    jax.block_until_ready(run())
    return time.perf_counter() - start


def measure(case: Case, rounds: int) -> dict[str, Any]:
    """One row: both compiled, run alternately."""
    name, fn, args, mesh, tactics = case
    step = mw.partition(fn, mesh, tactics)
    plan = step.plan(*args)
    stock = jax.jit(
        fn, in_shardings=plan.in_shardings, out_shardings=plan.out_shardings
    )
    placed = jax.device_put(args, plan.in_shardings)
    start = time.perf_counter()
    ours_compiled = step.lower(*placed).compile()
    middle = time.perf_counter()
    stock_compiled = stock.lower(*placed).compile()
    end = time.perf_counter()
    pairs = []
    for i in range(rounds + 2):
        pair = (
            seconds(lambda: ours_compiled(*placed)),
            seconds(lambda: stock_compiled(*placed)),
        )
        if i >= 2:
            pairs.append(pair)
    return {
        "case": name,
        "ours_s": statistics.median(a for a, _ in pairs),
        "stock_s": statistics.median(b for _, b in pairs),
        "ratio": statistics.median(a / b for a, b in pairs),
        "ours_lower_and_compile_s": middle - start,
        "stock_lower_and_compile_s": end - middle,
        "ours_temp_bytes": ours_compiled.memory_analysis().temp_size_in_bytes,
        "stock_temp_bytes": stock_compiled.memory_analysis().temp_size_in_bytes,
    }


@benchmark(
    option("--rounds", type=int, default=15),
    ONLY,
    option("--light", action="store_true", help="without heavy programs"),
    out=STORED,
)
def main(options: Options) -> None:
    """Measure, print a table, write JSON."""
    rows = []
    chosen = [c for c in cases(options.light) if options.only in c[0]]
    for case in track(chosen, "measuring", console=CONSOLE, transient=True):
        rows.append(measure(case, options.rounds))
        write(rows, options)
    table = Table("case", "ours ms", "stock ms", "ratio", "compile ratio", "temp ratio")
    for row in rows:
        table.add_row(
            row["case"],
            f"{row['ours_s'] * 1e3:.1f}",
            f"{row['stock_s'] * 1e3:.1f}",
            f"{row['ratio']:.2f}",
            f"{row['ours_lower_and_compile_s'] / row['stock_lower_and_compile_s']:.2f}",
            f"{row['ours_temp_bytes'] / max(row['stock_temp_bytes'], 1):.2f}",
        )
    CONSOLE.print(table)
    CONSOLE.print(f"median of the ratios: {median(rows):.3f} over {len(rows)} cases")


def median(rows: list[dict[str, Any]]) -> float:
    """The median of the cases' ratios."""
    return statistics.median(row["ratio"] for row in rows)


def write(rows: list[dict[str, Any]], options: Options) -> None:
    """Save the results so far, so that an interrupted run keeps them."""
    found = {"jax": jax.__version__, "median_ratio": median(rows), "rows": rows}
    options.save(found)


if __name__ == "__main__":
    main()
