"""What differs between XLA's compilers in what they store, and where."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rules:
    """How one compiler runs a device program.

    calls_library: products and large reductions are calls that read and write memory,
        elementwise results lie where an operand lay that is read no more, what loops
        stack is there from the start, results have memory of their own all along, and
        units run breadth first; else products take elementwise ops in on both sides,
        and units run in the order of the program.
    """

    calls_library: bool = False


TPU = Rules()
GPU = Rules()
CPU = Rules(calls_library=True)

RULES: Mapping[str, Rules] = {"tpu": TPU, "gpu": GPU, "cpu": CPU}
"""By `Machine.compiler`."""
