"""Modelled cycles of spill code, from the remarks of clang's register allocator.

A remark tells, for each function, how often its spills, reloads and copies of registers
run in one call, by the frequencies of their blocks. An operand in memory counts as the
load or store that it folds.
"""

import re
from pathlib import Path

_CYCLES = {
    "TotalSpillsCost": 1.0,
    "TotalFoldedSpillsCost": 1.0,
    "TotalReloadsCost": 4.0,
    "TotalFoldedReloadsCost": 4.0,
    "TotalCopiesCost": 0.2,
}
"""Cycles of one store, load and copy: the weights by which LLVM scores an allocation
(LLVM: RegAllocScore.cpp)."""

_FUNCTION = re.compile(r"^Function: +'?(.+?)'?$", re.MULTILINE)
_COST = re.compile(r"^  - (Total\w+Cost): +'(.+)'$", re.MULTILINE)


def spill_flags(record: str) -> tuple[str, ...]:
    """Flags with which clang writes the remarks to a file, and the same object.

    Its option -fsave-optimization-record would add line tables to the object.
    """
    options = ("-opt-record-file", record, "-opt-record-passes", "regalloc")
    return tuple(part for each in options for part in ("-Xclang", each))


def recorded_cycles(record: Path) -> dict[str, float]:
    """Modelled cycles of spill code in one call, by function, from a file of remarks.

    Functions without spill code are left out, and a file that is missing has none.
    """
    text = record.read_text(errors="replace") if record.exists() else ""
    cycles: dict[str, float] = {}
    for remark in text.split("\n...\n"):
        function = _FUNCTION.search(remark)
        # Other remarks are about one loop of a function.
        if function is not None and "Name:            SpillReloadCopies\n" in remark:
            cycles[function[1]] = sum(
                _CYCLES.get(name, 0.0) * float(value)
                for name, value in _COST.findall(remark)
            )
    return cycles
