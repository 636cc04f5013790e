"""The space of datapaths of FAST, and the design of a candidate.

Its parts are those that Zhang et al. name ("A Full-Stack Search Technique for Domain
Optimized Deep Learning Accelerators", ASPLOS 2022): the grid of PEs, the array of each, its
vector unit, its memories, the global memory, channels of GDDR6, and the native batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from typing import Any

from meshwright.features.codesign.accelerator.design.design import Design
from meshwright.machine.accelerator import DATAFLOWS, SHARINGS
from meshwright.search.trials import Candidate, Choice, Space

_SIDES = tuple(1 << i for i in range(9))
_L1_SIZES = tuple(1024 << i for i in range(11))
_GLOBAL_MIB = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256)

_GDDR6_BYTES_PER_S = 56e9
"""Bandwidth of a channel of 32 bits at 14 Gb/s."""

_GLOBAL_BYTES_A_CYCLE = 2048
"""Bytes a cycle of the global memory, as TPU v4i's at its clock."""


def datapaths(has_batch: bool = True) -> Space:
    """The space of designs; with the native batch if that is searched."""
    parts: dict[str, Any] = {
        "pes_x": Choice(*_SIDES),
        "pes_y": Choice(*_SIDES),
        "rows": Choice(*_SIDES),
        "columns": Choice(*_SIDES),
        "dataflow": Choice(*DATAFLOWS),
        "vector": Choice(1, 2, 4, 8, 16),
        "l1": Choice(*SHARINGS),
        "l1_inputs": Choice(*_L1_SIZES),
        "l1_weights": Choice(*_L1_SIZES),
        "l1_outputs": Choice(*_L1_SIZES),
        "l2": Choice(0, 1, 2, 4, 8, 16, 32, 64, 128),
        "global_mib": Choice(*_GLOBAL_MIB),
        "channels": Choice(*range(1, 9)),
    }
    if has_batch:
        parts["batch"] = Choice(*_SIDES)
    return Space(parts)


def known_designs(base: Design, has_batch: bool = True) -> Iterator[Candidate]:
    """Designs to begin with: all or half of `base`'s multipliers in square arrays.

    Small arrays around a global memory, with a small batch, are what FAST reports.
    """
    multipliers = base.chip.num_pes * base.chip.array[0] * base.chip.array[1]
    for side, halves in product((128, 64, 32), (0, 1)):
        power = max(0, (multipliers // side**2).bit_length() - 1 - halves)
        made: Candidate = {
            "pes_x": min(_SIDES[-1], 1 << (power + 1) // 2),
            "pes_y": min(_SIDES[-1], 1 << power // 2),
            "rows": side,
            "columns": side,
            "dataflow": "weight",
            "vector": 4,
            "l1": "shared",
            "l1_inputs": 16384,
            "l1_weights": 16384,
            "l1_outputs": 16384,
            "l2": 8 if side > 32 else 1,
            "global_mib": 32,
            "channels": 6,
        }
        yield made | ({"batch": 8} if has_batch else {})


def design_of(candidate: Mapping[str, Any], base: Design) -> Design:
    """The design of a candidate; clock, node and number format are those of `base`.

    "vector" is lanes for each column of an array, "l2" bytes for each one of L1.
    """
    c, chip = candidate, base.chip
    l1 = (c["l1_inputs"], c["l1_weights"], c["l1_outputs"])
    made = base.changed(
        pes=(c["pes_x"], c["pes_y"]),
        array=(c["rows"], c["columns"]),
        dataflow=c["dataflow"],
        preloads=1,
        vector_lanes=c["vector"] * c["columns"],
        l1=c["l1"],
        l1_bytes=l1,
        l2_bytes=c["l2"] * sum(l1),
        global_bytes=c["global_mib"] << 20,
        global_bytes_per_s=_GLOBAL_BYTES_A_CYCLE * chip.clock_hz,
        dram="gddr6",
        dram_channels=c["channels"],
        dram_channel_bytes_per_s=_GDDR6_BYTES_PER_S,
        dram_channel_bytes=1 << 30,
        batch=c.get("batch", chip.batch),
    )
    return replace(made, name="found", title="A design that a search found")
