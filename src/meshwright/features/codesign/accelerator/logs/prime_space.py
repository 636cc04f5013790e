"""The ten-parameter space of PRIME's published data set, and its designs.

The values are those of the released data (Kumar et al., "Data-Driven Offline Optimization
for Architecting Hardware Accelerators", ICLR 2022). The release does not name the
parameters. The names here follow from the number of values, as in the paper's table; how a
value becomes a memory of the template is ours.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from meshwright.features.codesign.accelerator.design.design import Design
from meshwright.features.codesign.accelerator.workload.layers import Workload
from meshwright.machine import Accelerator

_SIDES = (1, 2, 4, 6, 8, 10, 12, 14, 16, 32)

VALUES: Mapping[str, tuple[int, ...]] = {
    "pes_x": _SIDES,
    "pes_y": _SIDES,
    "simd": tuple(4 << i for i in range(7)),
    "lanes": _SIDES,
    "pe_memory": tuple((256 << 10) << i for i in range(7)),
    "core_memory": tuple((4 << 10) << i for i in range(11)),
    "activation_memory": tuple(256 << i for i in range(7)),
    "instruction_memory": tuple(8192 << i for i in range(4)),
    "parameter_memory": tuple(2048 << i for i in range(5)),
    "dram_gb_per_s": (5, 10, 16, 20, 25, 30),
}
"""The values of each parameter, in the order of the data set."""

NAMES = tuple(VALUES)

NUM_DESIGNS = math.prod(map(len, VALUES.values()))

AREA_CAP_MM2 = 27.0
"""Area above which the published experiments count a design as infeasible."""

_PARAMETER_UNIT, _ACTIVATION_UNIT = 16, 64
"""Bytes of a PE's buffers for each unit of parameter and activation memory."""

_DESCRIPTOR_BYTES = 64
"""Bytes of instruction memory that one layer takes, an assumption."""

_CLOCK_HZ = 800e6

type Genes = Sequence[int]
"""For each parameter the position of its value."""


def draw(seed: int, number: int) -> tuple[int, ...]:
    """Design `number` of the random designs of a seed, as positions of values."""
    random = np.random.default_rng([seed, number])
    return tuple(int(random.integers(len(values))) for values in VALUES.values())


def values_of(genes: Genes) -> dict[str, int]:
    """The values of a design by the names of the parameters."""
    pairs = zip(VALUES.items(), genes, strict=True)
    return {name: values[gene] for (name, values), gene in pairs}


def design_of(genes: Genes) -> Design:
    """The design of the template; raises `MachineError` for one that it does not have."""
    v = values_of(genes)
    pes = v["pes_x"] * v["pes_y"]
    chip = Accelerator(
        pes=(v["pes_x"], v["pes_y"]),
        array=(v["simd"], v["lanes"]),
        clock_hz=_CLOCK_HZ,
        dataflow="output",
        number="int8",
        vector_lanes=max(1, v["simd"] // 4),
        l1_bytes=(
            v["activation_memory"] * _ACTIVATION_UNIT,
            v["parameter_memory"] * _PARAMETER_UNIT,
            v["core_memory"],
        ),
        global_bytes=v["pe_memory"] * pes,
        global_bytes_per_s=64.0 * pes * _CLOCK_HZ,
        dram="lpddr4",
        dram_channels=1,
        dram_channel_bytes_per_s=v["dram_gb_per_s"] * 1e9,
        dram_channel_bytes=1 << 30,
        launch_s=1e-6,
    )
    return Design("prime", chip)


def misfit_of(
    genes: Genes, design: Design, workload: Workload, area_cap_mm2: float
) -> str:
    """Why a design is infeasible before anything is simulated; "" if it is not."""
    if design.area_mm2 > area_cap_mm2:
        return f"area {design.area_mm2:.1f} mm2 above {area_cap_mm2:g}"
    needed = _DESCRIPTOR_BYTES * len(workload.layers)
    if needed > values_of(genes)["instruction_memory"]:
        return (
            f"instruction memory lacks {needed} bytes for {len(workload.layers)} layers"
        )
    return ""
