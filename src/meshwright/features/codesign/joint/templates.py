"""Templates of accelerators whose numbers are searched together with a model.

The edge template is that of Zhou et al., "Towards the Co-design of Neural Networks and
Accelerators" (MLSys 2022), its values as recalled: PEs, SIMD units, compute lanes, local
memory, register file and bandwidth, around a baseline of 4 x 4 PEs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from meshwright.errors import AcceleratorError, did_you_mean
from meshwright.features.codesign.accelerator.design.design import Design
from meshwright.search.trials import Candidate, Choice, Space

_LOCAL_BYTES_A_CYCLE = 64
"""Bytes a cycle of each PE's local memory, as in the preset `edge-tpu`."""


@dataclass(frozen=True, slots=True)
class Template:
    """A space of accelerators.

    baseline: the candidate of the accelerator that is known.
    """

    space: Space
    baseline: Candidate
    design: Callable[[Mapping[str, Any]], Design]

    @property
    def baseline_design(self) -> Design:
        """The accelerator that is known."""
        return self.design(self.baseline)


def edge_design(candidate: Mapping[str, Any]) -> Design:
    """The design of a candidate of the edge template; the rest is the preset's."""
    c, base = candidate, Design.load("edge-tpu")
    pes, registers = c["pes_x"] * c["pes_y"], (c["register_kib"] << 10) * c["lanes"]
    made = base.changed(
        pes=(c["pes_x"], c["pes_y"]),
        array=(c["simd"], c["lanes"]),
        vector_lanes=c["simd"] // 4,
        l1_bytes=(registers // 2, registers // 4, registers // 4),
        global_bytes=(c["local_kib"] << 10) * pes,
        global_bytes_per_s=_LOCAL_BYTES_A_CYCLE * pes * base.chip.clock_hz,
        dram_channel_bytes_per_s=c["gb_per_s"] * 1e9,
    )
    return replace(made, name="found", title="A design found together with a model")


TEMPLATES: Mapping[str, Template] = {
    "edge": Template(
        Space(
            {
                "pes_x": Choice(1, 2, 4, 6, 8),
                "pes_y": Choice(1, 2, 4, 6, 8),
                "simd": Choice(16, 32, 64, 128),
                "lanes": Choice(1, 2, 4, 8),
                "local_kib": Choice(512, 1024, 2048, 3072, 4096),
                "register_kib": Choice(8, 16, 32, 64, 128),
                "gb_per_s": Choice(5, 10, 15, 20, 25),
            }
        ),
        {
            "pes_x": 4, "pes_y": 4, "simd": 64, "lanes": 4, "local_kib": 2048,
            "register_kib": 32, "gb_per_s": 20,
        },
        edge_design,
    ),
}  # fmt: skip
"""Templates by name."""


def find_template(name: str) -> Template:
    """The template of a name."""
    if name not in TEMPLATES:
        hint = did_you_mean(name, TEMPLATES)
        raise AcceleratorError(
            f"no template {name!r:.60}{hint}; there are {', '.join(TEMPLATES)}"
        )
    return TEMPLATES[name]
