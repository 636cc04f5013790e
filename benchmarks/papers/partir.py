"""PartIR's Table 4 by our simulator: T32 and its serving loop on 32 cores of TPU v3.

Alabed et al., "PartIR: Composing SPMD Partitioning Strategies for Machine Learning",
ASPLOS 2025. On two machines: our description of TPU v3, and one that counts as PartIR's
simulator does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import cache, partial
from typing import Any

import jax

import meshwright as mw
from meshwright.machine import Machine, load_machine
from meshwright.machine.placement import place_mesh
from meshwright.predict.estimate import estimate
from zoo import gpt, serving

CORES = 32
FLOPS_PER_S = 61.5e12
LINK_BYTES_PER_S = 70e9
"""Peak rates of a TPU v3 core in 32 bits, and of a link, by PartIR (section 7)."""

Row = dict[str, Any]


def tpu_v3() -> Machine:
    """PartIR's cores of TPU v3, a mesh of 8 by 4."""
    return load_machine("tpu-v3", CORES)


def as_counted() -> Machine:
    """The same cores as PartIR's simulator counts them (its appendix A.3).

    Only operations and bytes sent take time. Products run at peak without padding;
    elementwise arithmetic is small and free. Main memory has a size but no speed, 32-bit
    values stay 32 bits, and nothing overlaps. A hop has our latency, since the appendix
    gives none.
    """
    machine = tpu_v3()
    chip = replace(
        machine.chip,
        flops_per_s={"float32": FLOPS_PER_S},
        vector_flops_per_s=math.inf,
        hbm_bytes_per_s=math.inf,
        launch_s=0.0,
        tile=(1, 1),
        unit=(1, 1),
        efficiency={},
    )
    inner, *outer = machine.levels
    link = replace(inner, link_bytes_per_s=LINK_BYTES_PER_S)
    grid = tuple(
        replace(dim, level=link) if dim.level == inner else dim for dim in machine.grid
    )
    levels = (link, *outer)
    return replace(machine, chip=chip, levels=levels, grid=grid, compiler="plain")


MACHINES = {"tpu-v3": tpu_v3, "counted": as_counted}


@cache
def t32(schedule: str) -> Mapping[str, Row]:
    """A train step of T32 at full size under a schedule, on each of `MACHINES`."""
    mesh, tactics = {"batch": 8, "model": 4}, gpt.schedules[schedule]
    step = mw.partition(gpt.train_step, mesh, tactics, gather="at_use")
    return _on_machines(step, *gpt.shapes(gpt.T32))


@cache
def it32(schedule: str, batch: int) -> Mapping[str, Row]:
    """T32's serving loop with a number of sequences, on each of `MACHINES`."""
    config = replace(serving.SIZES["it32"], batch=batch)
    serve = partial(serving.serve, config)
    params = jax.eval_shape(partial(serving.init, config), jax.random.key(0))
    prompt = jax.ShapeDtypeStruct((batch, config.prompt), "int32")
    mesh, tactics = {"data": 8, "model": 4}, serving.schedules[schedule]
    step = mw.partition(serve, mesh, tactics, gather="at_use")
    return _on_machines(step, params, {"prompt": prompt})


def _on_machines(step: Any, *args: Any) -> dict[str, Row]:
    """Seconds, bytes and the parts of the seconds, by machine.

    Mesh axes lie on the machine in their order, as in the paper, which chooses no
    placement.
    """
    decided = step.decide(*args)
    told: dict[str, Row] = {}
    for name, make in MACHINES.items():
        machine = make()
        placement = place_mesh(decided.lowered.mesh, machine)
        found = estimate(decided, machine, placement=placement)
        told[name] = {
            "step_s": found.step_time_s,
            "bytes": found.peak_memory_bytes,
            "breakdown": dict(found.breakdown),
        }
    return told
