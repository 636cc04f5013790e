"""Area and power of a design, part by part, and which share of each is assumed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from meshwright.features.codesign.accelerator.cost.figures import (
    ARRAY_MM2,
    CHANNEL_MM2,
    DYNAMIC_FACTOR,
    LANE_AREA,
    LEAKAGE_W_PER_MM2,
    MEMORY_MM2,
    NUMBER_AREA,
    PICOJOULE,
    REST_SHARE,
    area_scale,
    dram_pj,
    multiply_add_pj,
    sram_pj,
)
from meshwright.machine import Accelerator

_ASSUMED_AREAS = frozenset({"vector", "channels", "rest"})
_ASSUMED_POWERS = frozenset({"leakage", "overhead", "vector"})


@dataclass(frozen=True, slots=True)
class ChipCost:
    """Area and sustained peak power of a design.

    area_mm2: by part: "arrays", "vector", "memory", "channels", "rest".
    power_w: by part, with everything busy: "arrays", "vector", "memory", "dram",
        "overhead" of clock and wires, "leakage".
    """

    area_mm2: Mapping[str, float]
    power_w: Mapping[str, float]

    @property
    def total_mm2(self) -> float:
        """Area of the die."""
        return sum(self.area_mm2.values())

    @property
    def tdp_w(self) -> float:
        """Power that the chip draws while all its parts are busy."""
        return sum(self.power_w.values())

    @property
    def assumed_area(self) -> float:
        """The share of the area for which no published figure stands."""
        assumed = sum(a for part, a in self.area_mm2.items() if part in _ASSUMED_AREAS)
        return assumed / self.total_mm2

    @property
    def assumed_power(self) -> float:
        """The share of the power for which no published figure stands."""
        assumed = sum(w for part, w in self.power_w.items() if part in _ASSUMED_POWERS)
        return assumed / self.tdp_w


def chip_cost(chip: Accelerator) -> ChipCost:
    """Area and power of a design at its node."""
    area = _areas(chip)
    return ChipCost(area, _powers(chip, sum(area.values())))


def _areas(chip: Accelerator) -> dict[str, float]:
    logic, memory = area_scale(chip.node_nm), area_scale(chip.node_nm, of_memory=True)
    lanes = chip.num_pes * chip.vector_lanes
    area = {
        "arrays": chip.num_multipliers
        * ARRAY_MM2
        * NUMBER_AREA[chip.number].value
        * logic,
        "vector": lanes * LANE_AREA.value * ARRAY_MM2 * logic,
        "memory": chip.on_chip_bytes * MEMORY_MM2 * memory,
        "channels": chip.dram_channels * CHANNEL_MM2[chip.dram].value,
    }
    area["rest"] = sum(area.values()) * REST_SHARE.value / (1 - REST_SHARE.value)
    return area


def _powers(chip: Accelerator, area_mm2: float) -> dict[str, float]:
    """Watts by part while arrays, vector units and memories work at their peaks.

    In each cycle the edges of an array exchange a row of inputs and a column of sums with
    the first memory.
    """
    rows, columns = chip.array
    edge_bytes = chip.num_pes * (rows * _itemsize(chip) + 2 * columns * 4)
    l1_pj = sram_pj(max(chip.l1_bytes), chip.node_nm)
    lanes = chip.num_pes * chip.vector_lanes
    watts = {
        "arrays": chip.num_multipliers * multiply_add_pj(chip.number, chip.node_nm),
        "vector": lanes * multiply_add_pj("float32", chip.node_nm),
        "memory": edge_bytes * l1_pj,
    }
    watts = {part: pj * PICOJOULE * chip.clock_hz for part, pj in watts.items()}
    if chip.global_bytes:
        pj = sram_pj(chip.global_bytes, chip.node_nm)
        watts["memory"] += chip.global_bytes_per_s * pj * PICOJOULE
    watts["overhead"] = sum(watts.values()) * (DYNAMIC_FACTOR.value - 1)
    watts["dram"] = chip.dram_bytes_per_s * dram_pj(chip.dram) * PICOJOULE
    watts["leakage"] = area_mm2 * LEAKAGE_W_PER_MM2.value
    return watts


def _itemsize(chip: Accelerator) -> int:
    return {"int8": 1, "float32": 4}.get(chip.number, 2)
