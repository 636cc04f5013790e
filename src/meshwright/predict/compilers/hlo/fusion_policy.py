"""Policy of a compiler for fusions, which `xla.instruction_fusion` follows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from meshwright.predict.compilers.hlo.dataflow import Flow
from meshwright.predict.compilers.hlo.fusion import FusionKind
from meshwright.predict.compilers.hlo.layouts import Layouts
from meshwright.predict.compilers.hlo.producers import FusedProducers
from meshwright.program.ir import Op, Value


class Decision(NamedTuple):
    """Fate of one result of an op: stored, recomputed by consumers, or both.

    is_stored: whether it is written to memory.
    is_fused: whether consumers recompute it; `consumers` says which, `None` means all.
    """

    is_stored: bool
    is_fused: bool
    consumers: frozenset[Op] | None = None


STORED, FUSED, UNUSED = (
    Decision(True, False),
    Decision(False, True),
    Decision(False, False),
)

DecideFn = Callable[[Op, FusionKind, FusedProducers, Flow, Layouts], Sequence[Decision]]
"""Decisions on an op's results, given its kind and the producers fused into it."""


def same_flow(flow: Flow) -> Flow:
    """The dataflow as it is."""
    return flow


def no_aliases(
    op: Op, kind: FusionKind, producers: FusedProducers, flow: Flow
) -> tuple[Value, ...]:
    """No operands: the result gets a buffer of its own."""
    del op, kind, producers, flow
    return ()


@dataclass(frozen=True, slots=True)
class FusionPolicy:
    """Choices of one compiler in forming fusions.

    decide: what becomes of each result of an op.
    single_consumer_chains: by value with one consumer, which fuses it whatever that
        takes, its producer; such values are not decided on one by one.
    aliased_operands: operands whose buffers an op's result may take, if nothing reads
        them later.
    carried_operands: by result of a loop, the operand whose buffer it takes.
    stack_outputs: outputs of an op's bodies that are written into the stacked result.
    slice_readers: kinds of fusions that read a slice of a stacked operand where it is.
    reclassify: the dataflow after ops are pattern-matched, such as softmaxes.
    """

    decide: DecideFn
    single_consumer_chains: Callable[[Flow], Mapping[Value, Op]]
    aliased_operands: Callable[
        [Op, FusionKind, FusedProducers, Flow], tuple[Value, ...]
    ]
    carried_operands: Callable[[Op, Flow], Mapping[Value, Value]]
    stack_outputs: Callable[[Op], set[Value]]
    slice_readers: frozenset[FusionKind]
    reclassify: Callable[[Flow], Flow] = same_flow
