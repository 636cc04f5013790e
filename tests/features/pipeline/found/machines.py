"""Machines of eight devices on which pipelines of small steps are fast.

Each is a preset with slow chips, slower outermost links, and no start times.
"""

from __future__ import annotations

from dataclasses import replace

from meshwright.machine import Machine, load_machine
from meshwright.machine.machine import make_grid


def _machine(
    name: str, flops_per_s: float, **levels: tuple[tuple[int, ...], float]
) -> Machine:
    """A preset with chips of this speed, and levels of these sizes and bytes per second."""
    preset = load_machine(name)
    joined = tuple(
        replace(
            level,
            extents=levels[level.name][0],
            link_bytes_per_s=levels[level.name][1],
            latency_s=1e-9,
            start_s=0.0,
            ramp_s=0.0,
        )
        for level in preset.levels
        if level.name in levels
    )
    chip = replace(
        preset.chip,
        launch_s=1e-9,
        flops_per_s=dict.fromkeys(preset.chip.flops_per_s, flops_per_s),
        vector_flops_per_s=flops_per_s,
        hbm_bytes_per_s=10 * flops_per_s,
    )
    return replace(
        preset, chip=chip, levels=joined, num_devices=8, grid=make_grid(name, joined, 8)
    )


MACHINES = {
    "v100, 4 hosts": lambda: _machine(
        "v100", 3e9, nvlink=((2,), 3e6), network=((4,), 1e5)
    ),
    "h100, 2 hosts": lambda: _machine(
        "h100", 3e9, nvlink=((4,), 3e7), network=((2,), 3e4)
    ),
    "tpu v5e": lambda: _machine("tpu-v5e", 1e9, ici=((2, 4), 3e5)),
    "cpu": lambda: _machine("cpu", 1e9, memory=((8,), 1e6)),
}
"""Sums of gradients over these links take longer than to wait for other stages."""
