"""Reduction programs: one collective, written as several over parts of a machine.

An example is an all-reduce over 4 nodes of 8 GPUs: a reduce-scatter in each node, an
all-reduce between nodes, and an all-gather in each node. The language, its semantics
and the enumeration are those of P2 (Xie et al., "Synthesizing Optimal Parallelism
Placement and Reduction Strategies", MLSys 2022).

Begin reading at `instruction.py`; `semantics.py` says what a step does to the chunks
that each device holds, and `synthesis.py` enumerates all programs that reach a goal.
"""

from meshwright.partitioner.collectives.instruction import (
    CollectiveKind,
    Form,
    ReductionStep,
    parse_program,
    show_program,
)
from meshwright.partitioner.collectives.semantics import (
    ReductionGoal,
    require_correct,
    why_wrong,
)
from meshwright.partitioner.collectives.synthesis import MOST_STEPS, synthesize

__all__ = [
    "MOST_STEPS",
    "CollectiveKind",
    "Form",
    "ReductionGoal",
    "ReductionStep",
    "parse_program",
    "require_correct",
    "show_program",
    "synthesize",
    "why_wrong",
]
