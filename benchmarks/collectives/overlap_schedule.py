"""Products that the TPU compiler schedules beside the permutes of `mw.overlap`.

Three programs are compiled ahead of time; no TPU is needed, but `meshwright[tpu]` is. In
the scheduled program, a permute runs from its start to its done. This counts the permutes
that have a matrix product between the two, and the all-gathers and reduce-scatters that
are left.

    python -m benchmarks collectives overlap_schedule
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.harness import STORED, Options, benchmark

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp

import meshwright as mw
from benchmarks.collectives.overlap import loss
from meshwright.app.plan import Plan
from meshwright.run.compilers.confirm import DeviceStep, confirm

_NAME = re.compile(r"^\s*(?:ROOT )?%?([\w.-]+) = ")
_BLOCK = re.compile(r"^(?:ENTRY )?%?([\w.-]+) \(.*\{$")


def plans() -> Iterator[tuple[str, Plan]]:
    """Three programs whose collectives are overlapped with products."""
    shape = jax.ShapeDtypeStruct
    width = 4096
    pair = (
        shape((width, 4 * width), jnp.bfloat16),
        shape((4 * width, width), jnp.bfloat16),
    )
    x = shape((16, 2048, width), jnp.bfloat16)
    sequence = [
        mw.data_parallel("data", "x"),
        mw.megatron("model", vocabulary=False),
        mw.sequence_parallel("model"),
        mw.overlap("model"),
    ]
    cases = (
        ("Megatron layers on 16 v4", "tpu-v4", {"data": 4, "model": 4}, sequence),
        ("Megatron layers on 16 v5e", "tpu-v5e", {"data": 2, "model": 8}, sequence),
        (
            "FSDP layers on 8 v5e", "tpu-v5e", {"data": 8},
            [mw.fsdp("data"), mw.overlap("data")],
        ),
    )  # fmt: skip
    for name, chip, mesh, tactics in cases:
        gather = "at_use" if "FSDP" in name else "shared"
        step = mw.partition(jax.grad(loss), mesh, tactics, gather=gather)
        yield name, step.plan([pair] * 2, x).on(chip)


def blocks(text: str) -> Mapping[str, list[str]]:
    """The lines of each computation of a program, by name."""
    found: dict[str, list[str]] = {}
    own: list[str] = []
    for line in text.splitlines():
        if start := _BLOCK.match(line):
            own = found[start[1]] = []
        own.append(line)
    return found


def figures(text: str) -> dict[str, int]:
    """Permutes, those beside a product, and collectives that are left."""
    computations = blocks(text)
    products = {
        name
        for name, lines in computations.items()
        if any(re.search(r" (?:convolution|dot)\(", line) for line in lines)
    }
    permutes = beside = 0
    for lines in computations.values():
        started: dict[str, int] = {}
        done = 0
        for line in lines:
            called = re.search(r" fusion\(.*calls=%?([\w.-]+)", line)
            is_fused = called is not None and called[1] in products
            done += is_fused or bool(re.search(r" (?:convolution|dot)\(", line))
            name = _NAME.match(line)
            if name and " collective-permute-start(" in line:
                started[name[1]] = done
            if end := re.search(r" collective-permute-done\(.*?%?([\w.-]+)\)", line):
                permutes += 1
                beside += started.get(end[1], done) < done
    return {
        "permutes": permutes,
        "permutes_beside_products": beside,
        "all_gathers": len(re.findall(r" all-gather(?:-start)?\(", text)),
        "reduce_scatters": len(re.findall(r" reduce-scatter\(", text)),
    }


@benchmark(out=STORED)
def main(options: Options) -> None:
    """Compile the programs, print their figures, write JSON."""
    rows: list[dict[str, Any]] = []
    for name, plan in plans():
        assert plan.decided is not None, "the plan was made here"
        assert plan.estimate is not None, "the plan was placed on a machine"
        step = DeviceStep(plan.decided.lowered, plan.decided.captured.avals)
        text = confirm(step, plan.estimate.machine).hlo
        assert "is_scheduled=true" in text, "the compiler's program is scheduled"
        rows.append({"program": name, **figures(text)})
        print(rows[-1], flush=True)
    options.save(rows)


if __name__ == "__main__":
    main()
