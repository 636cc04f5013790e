"""Collectives of one plan: our device program, and those that XLA makes of its constraints.

For each case, executions and bytes a step on one device, in code compiled for CPU
devices: `partition` (our device program), `plan.annotate` under `jax.jit` with Shardy and
with GSPMD, and `jax.jit` that is given only the shardings of arguments and results.

    python -m benchmarks partitioning annotated [CASE ...]      prints a table in Markdown
"""

import os

from benchmarks.harness import Options, benchmark, option

os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0"
    " --xla_llvm_disable_expensive_passes=true",
)
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax

import meshwright as mw
from meshwright.cli.arguments.target import find_target
from meshwright.run.compilers.hlo import hlo_collectives

DATA, MODEL = mw.data_parallel("data"), mw.megatron("model", vocabulary=False)
CASES = {
    "gpt, data + megatron": ("zoo/gpt.py:tiny", [DATA, MODEL]),
    "gpt, data + megatron + ZeRO-3": (
        "zoo/gpt.py:tiny",
        [DATA, MODEL, mw.zero(3, "data")],
    ),
    "moe, data + experts": ("zoo/moe.py:tiny", [DATA, mw.expert_parallel("model")]),
    "t5, data + megatron": ("zoo/t5.py:tiny", [DATA, MODEL]),
    "lstm, ZeRO-3": ("zoo/lstm.py:tiny", [DATA, mw.zero(3, "data")]),
}

WAYS = ("ours", "annotated, Shardy", "annotated, GSPMD", "only in and out")


@benchmark(option("cases", nargs="*", metavar="CASE"))
def main(options: Options) -> None:
    """Print one row per case."""
    print(f"| plan | {' | '.join(WAYS)} |")
    print("|---|---|---|---|---|")
    for name, (target, tactics) in CASES.items():
        if options.cases and name not in options.cases:
            continue
        loaded = find_target(target)
        fn, args = loaded.fn, loaded.args
        plan = mw.partition(fn, {"data": 4, "model": 2}, tactics).plan(*args)
        ends = {"in_shardings": plan.in_shardings, "out_shardings": plan.out_shardings}
        cells = [collectives(mw.partition(fn, plan).lower(*args))]
        for is_shardy in (True, False):
            jax.config.update("jax_use_shardy_partitioner", is_shardy)
            cells.append(collectives(jax.jit(plan.annotate(fn), **ends).lower(*args)))
        jax.config.update("jax_use_shardy_partitioner", True)
        cells.append(collectives(jax.jit(fn, **ends).lower(*args)))
        for way, (runs, mib) in zip(WAYS, cells, strict=True):
            options.note(f"{name}/{way}/executions", runs)
            options.note(f"{name}/{way}/received", mib * 2**20, "B")
        shown = (f"{runs} x, {mib:.2f} MiB" for runs, mib in cells)
        print(f"| {name} | {' | '.join(shown)} |", flush=True)


def collectives(lowered) -> tuple[int, float]:
    """Executions and mebibytes of all collectives of a step on one device."""
    text = lowered.compile().as_text()
    found = hlo_collectives(text, text, {}, 1.0)
    runs = sum(each.runs for each in found)
    mib = sum(each.runs * each.num_bytes for each in found) / 2**20
    return runs, mib


if __name__ == "__main__":
    main()
