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
from meshwright.program.ops import OpWork, Trait, has_trait, ops_with
from meshwright.program.records import fast_frozen
from meshwright.program.rules.registry import is_counted


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
"""Kind of op across which nothing is fused; its operands are stored in memory."""

SLICE_OF_DEVICE = "all_slice"
"""Kind of op that slices the device's part out of a value that all devices hold."""

PARTIAL_READS = frozenset({SLICE_OF_DEVICE, "dynamic_slice", "slice"})
"""Kinds of op for which a fusion reads only a part of the first operand."""

SlicesRead = Mapping[frozenset[Op], float]
"""Parts of a value that are read, each as a share of its elements, from 0 to 1.

The key of a part is the slices that take it. Parts taken by the same slices are the same
part; others are taken for parts apart.
"""

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
    if op.has_effect or _is_foreign(op):
        return FusionKind.OTHER
    if op.kind in _SCATTERS:
        return FusionKind.LOOP if _is_one_hot(op) else FusionKind.OTHER
    return FusionKind.LOOP


def _is_foreign(op: Op) -> bool:
    """Whether an op is a kernel that no compiler knows, such as a custom call.

    Its rule, if a user wrote one, may be newer than the table of kinds.
    """
    is_unknown = op.primitive is not None and not is_counted(op.kind)
    return is_unknown or has_trait(op.kind, Trait.STANDALONE)


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
    """Ops that a compiler emits as one kernel; only the root writes to memory.

    reads, writes: values in memory that the fusion reads and writes.
    work: FLOPs of all its ops, also of ops that other fusions recompute.
    in_place: the operand that the result may overwrite if nothing reads the operand
        later.
    bodies: for control flow, the fusions of each body.
    merged: the fusions that multi-output fusion merged into this one.
    overwrites: operands whose buffer the result may take if this is their last use.
    replaces: for results of a loop, the operand (a carry) whose buffer they take.
    is_joined: whether the fusion is launched together with the one before it; it keeps
        its own buffers.
    slices: for operands of which only slices are read, the parts that these take.
    update: for a matrix product that writes a part of `in_place`, the value of that part.
    sides: for a matrix product, one tuple for the left and one for the right operand:
        the values in `reads` from which the operand is computed.
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
    slices: Mapping[Value, SlicesRead] = MappingProxyType({})
    sides: tuple[tuple[Value, ...], ...] = ()
    update: Value | None = None

    @property
    def shares(self) -> dict[Value, float]:
        """For operands of which only slices are read, the share that is read, below 1."""
        return {value: share_read(each) for value, each in self.slices.items()}

    @property
    def parts(self) -> tuple[Fusion, ...]:
        """The fusions that were merged into this one; if none, the fusion itself."""
        return self.merged or (self,)


_WHOLE: SlicesRead = {frozenset[Op](): 1.0}


def share_read(slices: SlicesRead) -> float:
    """The share of a value that its parts have together, at most 1."""
    return min(1.0, sum(slices.values()))


def slices_read(fusions: Iterable[Fusion]) -> dict[Value, SlicesRead]:
    """The parts of each value of which several fusions read only slices.

    Values that a fusion reads in full are left out.
    """
    found: dict[Value, dict[frozenset[Op], float]] = {}
    for fusion in fusions:
        for value in fusion.reads:
            parts = found.setdefault(value, {})
            for key, share in fusion.slices.get(value, _WHOLE).items():
                parts[key] = max(parts.get(key, 0.0), share)
    return {value: each for value, each in found.items() if share_read(each) < 1}


def launch_groups(fusions: Sequence[Fusion]) -> list[tuple[int, int]]:
    """Index ranges of fusions that are launched together, one range per fusion.

    A range is the pair of the first and the last index, both included.
    """
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


def _all_keys(slices: Iterable[SlicesRead]) -> frozenset[Op]:
    """The slices that take any of these parts."""
    return frozenset(op for each in slices for key in each for op in key)


@dataclass(slots=True, eq=False)
class FusedProducers:
    """The ops that are fused into one consumer, with the work of each op.

    ops: each op comes after the ops whose results it reads.
    reads: the values in memory that these ops read, as an ordered set.
    """

    ops: dict[Op, OpWork]
    reads: dict[Value, None]

    def slices(
        self, root: Op, operands: Mapping[Op, Sequence[Value]]
    ) -> dict[Value, SlicesRead]:
        """Parts of each value read by the fused ops or the root that are needed.

        The result is empty if the fusion contains no slice; then all values are needed in
        full.
        root: the op into which the producers are fused.
        operands: the values that each op reads.
        """
        found: dict[Value, dict[frozenset[Op], float]] = {}
        if PARTIAL_READS.isdisjoint((root.kind, *(op.kind for op in self.ops))):
            return {}
        for op in (root, *reversed(self.ops)):
            results = [found[r] for r in op.results if r in found]
            share = 1.0 if op is root else max(map(share_read, results), default=0.0)
            key = frozenset([op]) if op.kind in PARTIAL_READS else _all_keys(results)
            made = math.prod(op.results[0].shape) if op.results else 0
            for value in operands[op]:
                size = math.prod(value.shape)
                ratio = made / size if size else 1.0
                if op.kind not in PARTIAL_READS:
                    ratio = max(1.0, ratio)  # broadcast: each element is needed often
                parts = found.setdefault(value, {})
                needed = min(1.0, share * ratio) if size else 1.0
                parts[key] = max(parts.get(key, 0.0), needed)
        return dict(found)

    def work_with(self, work: OpWork, shares: Mapping[Value, float]) -> OpWork:
        """The work of all fused producers plus `work`; each producer counts once.

        shares: for each value, the share of its elements that is needed; scales the
            work.
        """
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
