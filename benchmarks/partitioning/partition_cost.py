"""CPU seconds of partitioning, compared with XLA's compilation of the same step.

For each schedule: CPU seconds of all threads, so that other work on the machine counts
little. Measured are capture (tracing, which `jax.jit` needs as well, is shown apart),
propagation with lowering, and XLA's compilation of our step and of stock `jax.jit` with
the same in- and out-shardings. PartIR (Alabed et al., 2024) reports up to 14 % of XLA's
compile time for partitioning.

    python -m benchmarks partitioning partition_cost [--model t32]
"""

from __future__ import annotations

import gc
import os
import time
from typing import Any

from benchmarks import places
from benchmarks.harness import Options, benchmark, option

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")

import jax
from rich.console import Console
from rich.table import Table

import meshwright as mw
from meshwright.partitioner.decide import decide
from meshwright.partitioner.lower import Gather
from meshwright.program.capture import capture
from meshwright.run.local import jax_mesh, make_executable, named_shardings
from zoo import gpt

RESULTS = places.RESULTS / "partition_cost.json"
CONSOLE = Console()
MESH = mw.Mesh({"batch": 4, "model": 2})


def seconds(run: Any) -> tuple[float, Any]:
    """CPU seconds of a call, and its result."""
    gc.collect()
    start = time.process_time()
    result = run()
    return time.process_time() - start, result


def measure(model: str, schedule: str) -> dict[str, float | str]:
    """One row: seconds of each stage, and the two ratios."""
    fn, args = getattr(gpt, model)()
    flat, tree = jax.tree.flatten(args)
    trace_s, _ = seconds(lambda: jax.make_jaxpr(lambda *xs: fn(*xs))(*args))
    capture_s, captured = seconds(lambda: capture(fn, args))
    decide_s, decided = seconds(
        lambda: decide(captured, MESH, gpt.schedules[schedule], Gather.SHARED)
    )
    executable = make_executable(decided.lowered)
    shapes = [
        jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s)
        for x, s in zip(flat, executable.in_shardings, strict=True)
    ]
    emit_s, ours = seconds(lambda: executable.jitted.lower(*shapes))
    ours_s, _ = seconds(ours.compile)
    outs = named_shardings(jax_mesh(decided.lowered.mesh), decided.lowered.outputs)
    stock = jax.jit(
        lambda *xs: jax.tree.leaves(fn(*jax.tree.unflatten(tree, xs))),
        in_shardings=executable.in_shardings,
        out_shardings=list(outs),
    )
    stock_lower_s, lowered = seconds(lambda: stock.lower(*shapes))
    stock_s, _ = seconds(lowered.compile)
    return {
        "model": model,
        "schedule": schedule,
        "trace_s": trace_s,
        "capture_s": capture_s,
        "propagate_and_lower_s": decide_s,
        "emit_s": emit_s,
        "compile_ours_s": ours_s,
        "stock_trace_and_emit_s": stock_lower_s,
        "compile_stock_s": stock_s,
        "partition_share": (capture_s - trace_s + decide_s) / stock_s,
        "partition_share_with_trace": (capture_s + decide_s) / stock_s,
        "compile_ratio": ours_s / stock_s,
    }


@benchmark(
    option("--model", default="t32"),
    option("--schedules", default="bp,bp+mp,bp+mp+z3"),
    out=RESULTS,
)
def main(options: Options) -> None:
    """Measure, print a table, write JSON."""
    rows = []
    for schedule in options.schedules.split(","):
        with CONSOLE.status(f"{options.model} {schedule}"):
            rows.append(measure(options.model, schedule))
    keys = [k for k in rows[0] if k != "model"]
    table = Table("", *(str(row["schedule"]) for row in rows), title=options.model)
    for key in keys[1:]:
        table.add_row(key, *(f"{row[key]:.2f}" for row in rows))
    CONSOLE.print(table)
    options.save({"jax": jax.__version__, "rows": rows})


if __name__ == "__main__":
    main()
