"""Fusions: groups of ops that a compiler emits as one kernel.

The last op of a group is its root. The other ops, the fused producers, are computed
inside the kernel and leave no result in memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Any

from meshwright.program.ir import Atom, Literal, Op, Value, itemsize_bytes
from meshwright.program.ops import OpWork, Trait, ops_with
from meshwright.program.records import fast_frozen


class FusionKind(Enum):
    """The kind of a fusion's root op, which decides what limits the fusion's time."""

    PRODUCT = "product"  # the matrix unit
    REDUCTION = "reduction"
    LOOP = "loop"  # elementwise; XLA: kLoop
    COLLECTIVE = "collective"
    REGION = "region"  # control flow: a loop or a branch, with fusions of its own
    OTHER = "other"  # sorts, gathers, scatters, factorisations, random bits

    # Enum's own hash calls Python code; members are singletons, so identity will do.
    __hash__ = object.__hash__


BARRIER = "optimization_barrier"
"""An op across which nothing is fused, so that its operands are in memory."""

SLICE_OF_DEVICE = "all_slice"
"""An op that slices the device's own part out of a value that every device has whole."""

SPACE_TO_BATCH_COPY = "space_to_batch"
"""Kind of op that copies images that are split in space to another layout.

Only the space-to-batch pass makes it; no input program contains it.
"""

_KIND_OF = {
    **dict.fromkeys(ops_with(Trait.REGION), FusionKind.REGION),
    **dict.fromkeys(
        (*ops_with(Trait.STANDALONE), "clz", SPACE_TO_BATCH_COPY), FusionKind.OTHER
    ),
    **dict.fromkeys(ops_with(Trait.COLLECTIVE), FusionKind.COLLECTIVE),
    **dict.fromkeys(ops_with(Trait.REDUCTION), FusionKind.REDUCTION),
    **dict.fromkeys((*ops_with(Trait.CONTRACTION), "scaled_dot"), FusionKind.PRODUCT),
}


_SCATTERS = ops_with(Trait.SCATTERS)


def kind_of(op: Op) -> FusionKind:
    """The kind of the fusion whose root is `op`."""
    known = _KIND_OF.get(op.kind)
    if known is not None:
        return known
    if op.bodies:
        return FusionKind.REGION
    if op.has_effect:
        return FusionKind.OTHER
    if op.kind in _SCATTERS:
        return FusionKind.LOOP if _is_one_hot(op) else FusionKind.OTHER
    return FusionKind.LOOP


def is_zeros(producers: Mapping[Atom, Op], atom: Atom) -> bool:
    """Whether a value is a broadcast of the literal 0.

    producers: the op that computes each value.
    """
    producer = producers.get(atom)
    if producer is None or producer.kind != "broadcast_in_dim":
        return False
    (repeated,) = producer.operands
    return isinstance(repeated, Literal) and repeated.value == 0


def _is_one_hot(op: Op) -> bool:
    """Whether a scatter writes one element into each row, as gradients of losses do."""
    numbers: Any = op.params.get("dimension_numbers")
    batching = getattr(numbers, "operand_batching_dims", ())
    rank, indices = len(op.operands[0].shape), op.operands[1].shape
    return rank > 1 and len(batching) == rank - 1 and indices[-2:] in ((1, 1), (1,))


FUSES_OPERANDS = frozenset({FusionKind.PRODUCT, FusionKind.REDUCTION, FusionKind.LOOP})
"""Kinds of fusions that may compute their operands themselves (XLA: producer fusion)."""


@fast_frozen
@dataclass(frozen=True, slots=True, eq=False)
class Fusion:
    """Ops that run as one; only the root writes to memory.

    reads, writes: values in memory. work: of all ops, also those that other fusions
        compute as well.
    in_place: the operand whose memory the result may take if nothing reads it later.
    bodies: for control flow, the fusions of each body.
    merged: the fusions that multi-output fusion merged into this one.
    overwrites: operands whose buffer the result may take if this is their last use.
    replaces: for results of a loop, the operand (a carry) whose buffer they take.
    is_joined: whether it is launched together with the fusion before it; it keeps
    its own buffers.
    shares: for operands of which only the device's own slice is read, that share.
    sides: for a matrix product, the values in `reads` from which each operand is
    computed.
    """

    root: Op
    kind: FusionKind
    reads: tuple[Value, ...]
    writes: tuple[Value, ...]
    work: OpWork
    in_place: Value | None = None
    bodies: tuple[tuple[Fusion, ...], ...] = ()
    merged: tuple[Fusion, ...] = ()
    overwrites: tuple[Value, ...] = ()
    replaces: Mapping[Value, Value] = MappingProxyType({})
    is_joined: bool = False
    shares: Mapping[Value, float] = MappingProxyType({})
    sides: tuple[tuple[Value, ...], ...] = ()

    @property
    def parts(self) -> tuple[Fusion, ...]:
        """The fusions before multi-output fusion merged them."""
        return self.merged or (self,)


def read_shares(fusions: Iterable[Fusion]) -> dict[Value, float]:
    """For each value that several fusions read only in part, the share that is read.

    The share of a value is the largest that one fusion reads, below 1. Values that a
    fusion reads in full are left out.
    """
    shares: dict[Value, float] = {}
    for fusion in fusions:
        for value in fusion.reads:
            share = fusion.shares.get(value, 1.0)
            shares[value] = max(shares.get(value, 0.0), share)
    return {value: share for value, share in shares.items() if share < 1}


def launch_groups(fusions: Sequence[Fusion]) -> list[tuple[int, int]]:
    """For each fusion, the first and last index of those that are launched with it."""
    if not any(fusion.is_joined for fusion in fusions):
        return [(i, i) for i in range(len(fusions))]
    starts = [i for i, fusion in enumerate(fusions) if not fusion.is_joined]
    ends = [*starts[1:], len(fusions)]
    return [(a, b - 1) for a, b in zip(starts, ends, strict=True) for _ in range(a, b)]


def widening_bytes(op: Op) -> int:
    """Bytes by which a dtype conversion enlarges each element; 0 for other ops.

    The number is negative for a conversion to a narrower dtype.
    """
    if op.kind != "convert_element_type":
        return 0
    (operand,), (result,) = op.operands, op.results
    return itemsize_bytes(result.dtype) - itemsize_bytes(operand.dtype)


@dataclass(slots=True, eq=False)
class FusedProducers:
    """Ops that a consumer computes itself, with their work.

    ops: each after the ops whose results it reads. reads: the stored values that they
    read.
    """

    ops: dict[Op, OpWork]
    reads: dict[Value, None]

    def shares(
        self, root: Op, operands: Mapping[Op, Sequence[Value]]
    ) -> dict[Value, float]:
        """The share of each value that is needed; empty if all values are needed in full.

        root: the op into which the producers are fused. operands: of each op, as
        stored.
        """
        shares: dict[Value, float] = {}
        if SLICE_OF_DEVICE not in [root.kind, *(op.kind for op in self.ops)]:
            return shares
        for op in (root, *reversed(self.ops)):
            share = 1.0 if op is root else max(shares.get(r, 0.0) for r in op.results)
            made = math.prod(op.results[0].shape) if op.results else 0
            for value in operands[op]:
                size = math.prod(value.shape)
                if op.kind == SLICE_OF_DEVICE:
                    needed = share * made / size if size else 1.0
                else:  # a smaller operand is broadcast: each element is needed often
                    needed = min(1.0, share * max(1.0, made / size)) if size else 1.0
                known = shares.get(value, 0.0)
                # Equal shares are taken for the same part, others for parts apart.
                shares[value] = known if known == needed else min(1.0, known + needed)
        return shares

    def work_with(self, work: OpWork, shares: Mapping[Value, float]) -> OpWork:
        """The work of all producers, each counted once, plus `work`."""
        if not self.ops:
            return work
        works = self.ops.values()
        if shares:
            works = [
                each.scaled(max(shares[r] for r in op.results if r in shares))
                for op, each in self.ops.items()
            ]
        flops, transcendentals = work.flops, work.transcendentals
        for each in works:
            flops += each.flops
            transcendentals += each.transcendentals
        return OpWork(flops, transcendentals)
