"""Scanned layers with sharded weights: gathers in their own iteration, and one ahead.

The layers are compiled for TPUs ahead of time; no TPU is needed, but `meshwright[tpu]` is.
In the bodies of the scheduled program's loops this counts all-gathers that run beside
products (asynchronous), those that block (synchronous), and copies of gathered weights. It
prints these, and the simulated step, without and with `mw.overlap(axis, ahead=True)`.

    python -m benchmarks collectives gather_ahead
"""

from __future__ import annotations

import os
import re
from typing import Any

from benchmarks.harness import STORED, Options, benchmark

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp

import meshwright as mw
from benchmarks.collectives.overlap_schedule import blocks
from meshwright.partitioner.tactics import Tactic
from meshwright.run.compilers.confirm import DeviceStep, confirm

LAYERS, WIDTHS, TOKENS = 8, (2048, 4096), 8 * 2048


def loss(weights: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    """The mean square of the output of scanned feed-forward layers."""

    def layer(x: jax.Array, w: dict[str, jax.Array]) -> tuple[jax.Array, None]:
        return x + jax.nn.relu(x @ w["up"]) @ w["down"], None

    x, _ = jax.lax.scan(layer, x, weights)
    return jnp.mean(x.astype(jnp.float32) ** 2)


def figures(text: str, width: int) -> dict[str, int]:
    """Gathers in loop bodies, by whether they block, and copies of gathered weights."""
    bodies = set(re.findall(r"body=%?([\w.-]+)", text))
    computations = blocks(text)
    lines = [line for name in bodies for line in computations.get(name, ())]
    wide = rf"\[(?:1,)?(?:{width},{4 * width}|{4 * width},{width})\]"
    return {
        "beside_products": sum("%async-collective-start" in x[:30] for x in lines),
        "blocking": sum(bool(re.search(r" all-gather\(", x)) for x in lines),
        "copies": sum(bool(re.search(rf"{wide}\S* copy\(", x)) for x in lines),
    }


def row_of(chip: str, width: int, tactics: list[Tactic]) -> dict[str, Any]:
    """The figures of one case: what is simulated, and what the compiler made."""
    shape, up = jax.ShapeDtypeStruct, (LAYERS, width, 4 * width)
    weights = {
        "up": shape(up, jnp.bfloat16),
        "down": shape((LAYERS, 4 * width, width), jnp.bfloat16),
    }
    x = shape((TOKENS, width), jnp.bfloat16)
    step = mw.partition(jax.grad(loss), {"data": 8}, [mw.fsdp("data"), *tactics])
    plan = step.plan(weights, x).on(chip)
    assert plan.decided is not None, "the plan was made here"
    assert plan.estimate is not None, "the plan was placed on a machine"
    device = DeviceStep(plan.decided.lowered, plan.decided.captured.avals)
    compiled = confirm(device, plan.estimate.machine)
    return {
        "simulated_ms": round(1e3 * plan.step_time_s, 3),
        "exposed_ms": round(1e3 * plan.breakdown["all_gather exposed"], 3),
        "peak_mib": round(plan.estimate.peak_memory_bytes / 2**20),
        "compiled_peak_mib": round(compiled.peak_bytes / 2**20),
        **figures(compiled.hlo, width),
    }


@benchmark(out=STORED)
def main(options: Options) -> None:
    """Print the table, write JSON after each case."""
    rows: list[dict[str, Any]] = []
    for chip in ("tpu-v4", "tpu-v5e"):
        for width in WIDTHS:
            ahead = {"axis": "data", "products": False, "ahead": True}
            for name, tactics in (
                ("own iteration", []),
                ("ahead where faster", [mw.overlap(**ahead, machine=chip)]),
                ("all ahead", [mw.overlap(**ahead)]),
            ):
                row = {"chip": chip, "width": width, "gathers": name}
                rows.append(row | row_of(chip, width, tactics))
                print(rows[-1], flush=True)
                options.save(rows)


if __name__ == "__main__":
    main()
