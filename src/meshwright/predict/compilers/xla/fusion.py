"""Units: ops that run as one, by what is at their root."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Any, cast

from meshwright.program.ir import Atom, Literal, Op, Value, itemsize_bytes
from meshwright.program.ops import OpWork, Trait, has_trait, ops_with
from meshwright.program.records.fast_frozen import fast_frozen


class FusionKind(Enum):
    """What a unit's root is, and so what bounds its time."""

    PRODUCT = "product"  # the matrix unit
    REDUCTION = "reduction"
    LOOP = "loop"  # elementwise
    COLLECTIVE = "collective"
    REGION = "region"  # a loop or a branch, with units of its own
    OTHER = "other"  # sorts, gathers, scatters, factorisations, random bits

    # Members are single, and those of enums are hashed by name, in Python: too slow here.
    __hash__ = object.__hash__


BARRIER = "optimization_barrier"
"""What a compiler fuses nothing across, so that what comes to it is in memory."""

REGROUP = "regroup"
"""What copies images from one form to another (`regroup`); no op of a program."""

_NAMED = {
    **dict.fromkeys(ops_with(Trait.REGION), FusionKind.REGION),
    **dict.fromkeys((*ops_with(Trait.STANDALONE), "clz", REGROUP), FusionKind.OTHER),
    **dict.fromkeys(ops_with(Trait.COLLECTIVE), FusionKind.COLLECTIVE),
    **dict.fromkeys(ops_with(Trait.REDUCTION), FusionKind.REDUCTION),
    **dict.fromkeys((*ops_with(Trait.CONTRACTION), "scaled_dot"), FusionKind.PRODUCT),
}


def kind_of(op: Op) -> FusionKind:
    """The kind of unit that has `op` at its root."""
    named = _NAMED.get(op.kind)
    if named is not None:
        return named
    if op.bodies:
        return FusionKind.REGION
    if op.has_effect:
        return FusionKind.OTHER
    if has_trait(op.kind, Trait.SCATTERS):
        return FusionKind.LOOP if _is_one_hot(op) else FusionKind.OTHER
    return FusionKind.LOOP


def is_zeros(maker: Mapping[Value, Op], atom: Atom) -> bool:
    """Whether a value repeats 0; `maker` says which ops make values."""
    made_by = maker.get(atom) if isinstance(atom, Value) else None
    if made_by is None or made_by.kind != "broadcast_in_dim":
        return False
    (repeated,) = made_by.operands
    return isinstance(repeated, Literal) and repeated.value == 0


def _is_one_hot(op: Op) -> bool:
    """Whether a scatter puts one element into each row: a comparison with the index.

    That is the gradient of picking one element of each row, as losses do.
    """
    numbers: Any = op.params.get("dimension_numbers")
    batching = getattr(numbers, "operand_batching_dims", ())
    rank, indices = len(op.operands[0].shape), op.operands[1].shape
    return rank > 1 and len(batching) == rank - 1 and indices[-2:] in ((1, 1), (1,))


TAKES_IN = frozenset({FusionKind.PRODUCT, FusionKind.REDUCTION, FusionKind.LOOP})
"""Kinds whose operands may be computed on the fly."""


_NOTHING: Mapping[Value, Value] = MappingProxyType({})

_WHOLE: Mapping[Value, float] = MappingProxyType({})


@fast_frozen
@dataclass(frozen=True, slots=True, eq=False)
class Fusion:
    """Ops that run as one.

    root: the op that writes. reads, writes: values in memory. work: of all ops, those
    that other units compute as well included. in_place: the operand whose memory the
    result may take over if nobody reads it later. bodies: of a region, their units.
    merged: the units that this one stands for, if it is several in one.
    overwrites: operands whose memory the result takes, in step with reading it, where a
        compiler does that, and they are read here for the last time.
    replaces: by result, the operand in whose place it comes, where that is read here for
        the last time and as large: what a loop carries.
    is_joined: whether it runs as one with the unit before it, but stays one of its own.
    shares: of what is read only to take a device's part of it, the share that is read.
    sides: of a product of matrices, by operand, what of `reads` it is computed from.
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
    replaces: Mapping[Value, Value] = _NOTHING
    is_joined: bool = False
    shares: Mapping[Value, float] = _WHOLE
    sides: tuple[tuple[Value, ...], ...] = ()

    @property
    def parts(self) -> tuple[Fusion, ...]:
        """The units as they were before any were merged."""
        return self.merged or (self,)


def shares_of(units: Iterable[Fusion]) -> dict[Value, float]:
    """Of what several units read as one, the shares of those values not read whole."""
    shares: dict[Value, float] = {}
    for unit in units:
        for value in unit.reads:
            share = unit.shares.get(value, 1.0)
            shares[value] = max(shares.get(value, 0.0), share)
    return {value: share for value, share in shares.items() if share < 1}


def runs_of(units: Sequence[Fusion]) -> list[tuple[int, int]]:
    """By unit, the first and the last of those that run as one with it."""
    if not any(unit.is_joined for unit in units):
        return [(i, i) for i in range(len(units))]
    starts = [i for i, unit in enumerate(units) if not unit.is_joined]
    ends = [*starts[1:], len(units)]
    return [(a, b - 1) for a, b in zip(starts, ends, strict=True) for _ in range(a, b)]


HALF = 2
"""Bytes of 16 bits."""


def widens(op: Op) -> bool:
    """Whether an op gives a value in more bits."""
    return _added_bytes(op) > 0


def rounds(op: Op) -> bool:
    """Whether an op gives a value in 16 bits that came in more."""
    return _added_bytes(op) < 0 and itemsize_bytes(op.results[0].dtype) == HALF


def _added_bytes(op: Op) -> int:
    if op.kind != "convert_element_type":
        return 0
    (operand,), (result,) = op.operands, op.results
    return itemsize_bytes(result.dtype) - itemsize_bytes(operand.dtype)


def moves_last(op: Op) -> bool:
    """Whether it is a transposition of the last dim."""
    if op.kind != "transpose":
        return False
    permutation = cast("tuple[int, ...]", op.params["permutation"])
    return permutation[-1] != len(permutation) - 1
