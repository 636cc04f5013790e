"""Which ops run together, and so which values are ever written to memory.

A compiler does not store what an elementwise op makes: its readers compute it where
they need it. So a device program falls into *units*, each with one op at its root and
the elementwise ops that feed it, and only roots write. The rules are XLA's in the main:

- elementwise ops, broadcasts, slices and other moves of single elements are computed by
  their readers, again by each, unless there are several and reading what they are
  computed from takes more than reading them;
- reductions and products take such producers in, and write;
- what every reader takes in is written only where it leaves the program or a reader,
  such as a collective, a loop or a sort, needs it in memory;
- reshapes and their like are the same memory under another name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from meshwright.ir import Op, Program, Value, num_bytes
from meshwright.rules import COLLECTIVES, Work, work_of
from meshwright.simulate.layout import Layout


class Kind(Enum):
    """What a unit's root is, and so what bounds its time."""

    PRODUCT = "product"  # the matrix unit
    REDUCTION = "reduction"
    LOOP = "loop"  # elementwise
    COLLECTIVE = "collective"
    REGION = "region"  # a loop or a branch, with units of its own
    OTHER = "other"  # sorts, gathers, scatters, factorisations, random bits


_PRODUCTS = frozenset(
    {"conv_general_dilated", "dot_general", "ragged_dot_general", "scaled_dot"}
)

_REDUCTIONS = frozenset(
    {
        "argmax", "argmin", "reduce", "reduce_and", "reduce_max", "reduce_min",
        "reduce_or", "reduce_prod", "reduce_sum", "reduce_xor",
    }
)  # fmt: skip

_SAME_MEMORY = frozenset(
    {
        "copy", "expand_dims", "name", "optimization_barrier", "reshape", "squeeze",
        "stop_gradient", "tag",
    }
)  # fmt: skip

_REGIONS = frozenset({"cond", "remat", "scan", "while"})

_IN_PLACE = frozenset(
    {
        "dynamic_update_slice", "scatter", "scatter-add", "scatter-max", "scatter-min",
        "scatter-mul", "scatter-sub",
    }
)  # fmt: skip

_STANDS_ALONE = frozenset(
    {
        "all_to_all", "approx_top_k", "cholesky", "clz", "cumlogsumexp", "cummax",
        "cummin", "cumprod", "cumsum", "custom_call", "eig", "eigh", "fft", "gather",
        "geqrf", "householder_product", "lu", "pallas_call", "pure_callback", "qr",
        "random_bits", "reduce_window", "reduce_window_max", "reduce_window_min",
        "reduce_window_sum", "schur", "select_and_gather_add", "select_and_scatter",
        "select_and_scatter_add", "sort", "svd", "threefry2x32", "top_k",
        "triangular_solve", "tridiagonal_solve",
    }
)  # fmt: skip


def kind_of(op: Op) -> Kind:
    """The kind of unit that has `op` at its root."""
    if op.kind in _PRODUCTS:
        return Kind.PRODUCT
    if op.kind in _REDUCTIONS:
        return Kind.REDUCTION
    if op.kind in COLLECTIVES:
        return Kind.COLLECTIVE
    if op.bodies or op.kind in _REGIONS:
        return Kind.REGION
    if op.has_effect or (op.kind in _IN_PLACE and not _is_one_hot(op)):
        return Kind.OTHER
    return Kind.OTHER if op.kind in _STANDS_ALONE else Kind.LOOP


def _is_one_hot(op: Op) -> bool:
    """Whether a scatter puts one element into each row: a comparison with the index.

    That is the gradient of picking one element of each row, as losses do.
    """
    numbers: Any = op.params.get("dimension_numbers")
    batching = getattr(numbers, "operand_batching_dims", ())
    rank, indices = len(op.operands[0].shape), op.operands[1].shape
    return rank > 1 and len(batching) == rank - 1 and indices[-2:] in ((1, 1), (1,))


_TAKES_IN = frozenset({Kind.PRODUCT, Kind.REDUCTION, Kind.LOOP})
"""Kinds whose operands may be computed on the fly."""


@dataclass(frozen=True, slots=True, eq=False)
class Unit:
    """Ops that run as one.

    root: the op that writes. reads, writes: values in memory. work: of all ops, those
    that other units compute as well included. in_place: the operand whose memory the
    result may take over if nobody reads it later. bodies: of a region, their units.
    """

    root: Op
    kind: Kind
    reads: tuple[Value, ...]
    writes: tuple[Value, ...]
    work: Work
    in_place: Value | None = None
    bodies: tuple[tuple[Unit, ...], ...] = ()


def fuse(program: Program, layout: Layout | None = None) -> tuple[Unit, ...]:
    """The units of a program, in the order of their roots."""
    return _Fusion(program, layout or Layout()).units()


_SLACK = 1.25
"""Bytes that may be read for a value of one byte: itself, and vectors beside it."""

_SUNK = 4
"""Times that a value must be larger than what it repeats for a region to make it."""

_REPEATS = frozenset({"broadcast_in_dim", "iota"})


def _needed_whole(body: Program) -> set[Value]:
    """Values that some op of a body reads from memory as they are."""
    return {
        v
        for op in body.ops
        if kind_of(op) not in _TAKES_IN
        for v in op.operands
        if isinstance(v, Value)
    }


_Fed = tuple[dict[Op, None], dict[Value, None]]
"""Ops computed on the fly, and the stored values that they read; both in order."""


class _Fusion:
    """What is known while units are formed."""

    def __init__(self, program: Program, layout: Layout) -> None:
        self.program = program
        self.layout = layout
        self.narrowed: dict[Value, Value] = {}
        self.maker: dict[Value, Op] = {}
        self.origin: dict[Value, Value] = {}
        readers: dict[Value, list[Op]] = {}
        for op in program.ops:
            if op.kind in _SAME_MEMORY and isinstance(op.operands[0], Value):
                for result, operand in zip(op.results, op.operands, strict=False):
                    assert isinstance(operand, Value), f"{op.kind} of a literal"
                    self.origin[result] = self.origin.get(operand, operand)
                continue
            for result in op.results:
                self.maker[result] = op
            for value in self.operands(op):
                readers.setdefault(value, []).append(op)
        outputs = {
            self.origin.get(v, v) for v in program.outputs if isinstance(v, Value)
        }
        self.stored: set[Value] = set()
        self._fed: dict[Value, _Fed] = {}
        for value, op in self.maker.items():
            used_by = readers.get(value, [])
            if value not in outputs and self._is_computed_again(value, op, used_by):
                continue
            if used_by or value in outputs or op.has_effect:
                self.stored.add(value)
        self._open_regions()

    def operands(self, op: Op) -> list[Value]:
        """The values that an op reads, by the name under which they were made."""
        return [self.origin.get(v, v) for v in op.operands if isinstance(v, Value)]

    def _is_computed_again(self, value: Value, op: Op, used_by: list[Op]) -> bool:
        """Whether all readers compute it; notes what they then read for it."""
        if kind_of(op) is not Kind.LOOP:
            return False
        if not all(self._takes_in(reader, value) for reader in used_by):
            return False
        ops, reads = self._taken_in(op)
        if len(used_by) > 1 and sum(map(num_bytes, reads)) > _SLACK * num_bytes(value):
            return False
        self._fed[value] = {**ops, op: None}, reads
        return True

    def _takes_in(self, reader: Op, value: Value) -> bool:
        """A scatter fills its own result first: so it makes what it starts from."""
        if reader.kind in _IN_PLACE and not _is_one_hot(reader):
            return self.operands(reader)[0] is value
        if kind_of(reader) is Kind.REGION:
            return self._is_sunk(value)
        return kind_of(reader) in _TAKES_IN

    def _open_regions(self) -> None:
        """Say which values of bodies need no memory of their own."""
        for op in self.program.ops:
            stacked: list[set[Value]] = [set() for _ in op.bodies]
            for wire in op.wires:
                operand = None if wire.operand is None else op.operands[wire.operand]
                if wire.is_stacked:
                    for body, i in wire.inputs:
                        stacked[body].add(op.bodies[body].inputs[i])
                elif operand in self._fed and wire.result is None:
                    self.layout.virtual.update(
                        op.bodies[body].inputs[i] for body, i in wire.inputs
                    )
            for slices, body in zip(stacked, op.bodies, strict=True):
                self.layout.inside |= slices - _needed_whole(body)

    def _is_sunk(self, value: Value) -> bool:
        """Whether a region makes an operand itself: what only repeats a smaller value."""
        op = self.maker[value]
        return op.kind in _REPEATS and _SUNK * sum(
            num_bytes(v) for v in self.operands(op)
        ) <= num_bytes(value)

    def units(self) -> tuple[Unit, ...]:
        """One for each op that writes or has an effect."""
        return tuple(
            self._unit(op)
            for op in self.program.ops
            if op.kind not in _SAME_MEMORY
            and (op.has_effect or any(r in self.stored for r in op.results))
        )

    def _unit(self, op: Op) -> Unit:
        ops, reads = self._taken_in(op)
        work = sum((work_of(each) for each in ops), work_of(op))
        return Unit(
            op,
            kind_of(op),
            tuple(reads),
            tuple(r for r in op.results if r in self.stored),
            work,
            self._in_place(op, reads),
            tuple(fuse(body, self.layout) for body in op.bodies),
        )

    def _in_place(self, op: Op, reads: Mapping[Value, None]) -> Value | None:
        """The first operand of the result's size, for what may overwrite it."""
        if op.kind in _IN_PLACE:
            first = self.operands(op)[0]
            return first if first in reads else None
        if kind_of(op) is not Kind.LOOP:
            return None
        (result, *_) = op.results
        for value in reads:
            if (value.shape, value.dtype) == (result.shape, result.dtype):
                return value
        return None

    def _taken_in(self, op: Op) -> _Fed:
        """Ops that `op` computes itself, and what it reads for them."""
        ops: dict[Op, None] = {}
        reads: dict[Value, None] = {}
        for operand in self.operands(op):
            more, read = self._fed.get(operand, ({}, {operand: None}))
            ops |= more
            reads |= read
        return ops, reads
