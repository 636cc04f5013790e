"""Energy of multiplications and of accesses to the memories of a design."""

from collections.abc import Mapping
from functools import lru_cache

from meshwright.features.codesign.accelerator.cost.figures import (
    PICOJOULE,
    dram_pj,
    multiply_add_pj,
    sram_pj,
)
from meshwright.machine import Accelerator


def joules_of(
    traffic: Mapping[str, float], multiply_adds: float, chip: Accelerator
) -> dict[str, float]:
    """Joules by memory, and of the multiplications ("arrays")."""
    found = {
        memory: num_bytes * pj_per_byte(memory, chip) * PICOJOULE
        for memory, num_bytes in traffic.items()
    }
    pj = multiply_add_pj(chip.number, chip.node_nm)
    found["arrays"] = multiply_adds * pj * PICOJOULE
    return found


@lru_cache(maxsize=4096)
def pj_per_byte(memory: str, chip: Accelerator) -> float:
    """Energy of a byte that is read from or written to a memory of a design."""
    if memory == "dram":
        return dram_pj(chip.dram)
    size = chip.global_bytes if memory == "global" else max(chip.l1_bytes)
    return sram_pj(size, chip.node_nm)
