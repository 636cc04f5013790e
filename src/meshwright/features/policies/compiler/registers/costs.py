"""Costs of register allocation: spill code of a function, and all that it runs."""

import os
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from pathlib import Path

from meshwright.features.policies.compiler.registers.operations import (
    counted_operations,
    operation_flags,
)
from meshwright.features.policies.compiler.registers.spills import (
    recorded_cycles,
    spill_flags,
)

_EQUAL = 1e-9
"""Share by which two sums of the same addends may differ."""


@dataclass(frozen=True, slots=True)
class FunctionCost:
    """Costs of one call of a function, by the frequencies of its blocks.

    cycles: modelled cycles of its spill code. instructions, loads, stores: all that run.
    """

    cycles: float
    instructions: float
    loads: float
    stores: float

    @property
    def operations(self) -> float:
        """Micro-operations: instructions, and each of their accesses of memory."""
        return self.instructions + self.loads + self.stores


def cost_flags(record: str) -> tuple[str, ...]:
    """Flags with which clang writes assembler text, and remarks to a file, for costs."""
    return (*operation_flags(), *spill_flags(record))


def function_costs(text: Path, record: Path) -> dict[str, FunctionCost]:
    """Costs of each function of what these flags made; `ValueError` if they are unknown."""
    cycles = recorded_cycles(record)
    operations = counted_operations(os.fsdecode(text.read_bytes()))
    return {
        name: FunctionCost(cycles.get(name, 0.0), *each)
        for name, each in operations.items()
    }


def improved(
    plain: Mapping[str, FunctionCost], other: Mapping[str, FunctionCost]
) -> frozenset[str]:
    """Functions of which one cost is less than in the plain code, and none is more.

    A core may wait for any of its parts: less of one is no gain for more of another.
    """
    return frozenset(
        name
        for name in plain.keys() & other.keys()
        if is_less(other[name], plain[name])
    )


def is_less(one: FunctionCost, other: FunctionCost) -> bool:
    """Whether one cost is less than the other's, and none is more."""
    pairs = list(zip(astuple(one), astuple(other), strict=True))
    return all(a <= b * (1 + _EQUAL) for a, b in pairs) and any(
        a < b * (1 - _EQUAL) for a, b in pairs
    )
