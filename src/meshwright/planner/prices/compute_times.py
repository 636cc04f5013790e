"""Seconds that a node computes on one device, cut as a strategy says."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from meshwright.machine import Chip, Mesh
from meshwright.partitioner.propagate import Node
from meshwright.planner.prices.op_prices import AccessPrice, OpPrices
from meshwright.planner.prices.strategy import Cuts, Strategy
from meshwright.predict.roofline.bound import roofline_s
from meshwright.predict.roofline.kernel_time import (
    KernelTraffic,
    kernel_time,
    matrix_s,
    vector_flops,
)
from meshwright.program.ir import Atom, Op, Value
from meshwright.program.ops import (
    COLLECTIVES,
    Builder,
    OpCut,
    Trait,
    has_trait,
    work_of,
)
from meshwright.program.rules.pallas_kernel import kernel_of
from meshwright.program.rules.rule import Dims

type Table = NDArray[np.float64]

type _Axes = tuple[tuple[int, tuple[str, ...]], ...]

type _Collective = tuple[str, tuple[str, ...], float]


@dataclass(slots=True)
class _Works:
    """What ops with one rule work, by how they are cut.

    of: what they are of, which must stay alive, since they are found by its identity.
    parts: by factor, of each cut. flops: in the vector unit, and matrix_s: in the
    matrix unit. row_of: by choice, how it is cut.
    """

    of: object
    parts: list[dict[int, int]]
    flops: Table
    matrix_s: Table
    row_of: NDArray[np.int64]
    _shares: dict[Dims, Table] = field(default_factory=dict[Dims, Table])

    def share(self, dims: Dims) -> Table:
        """Of a value with these factors that one device has, by cut."""
        known = self._shares.get(dims)
        if known is None:
            factors = [f for fs in dims for f in fs]
            known = self._shares[dims] = np.array(
                [1 / math.prod([cut.get(f, 1) for f in factors]) for cut in self.parts]
            )
        return known

    def spread(self, by_cut: Sequence[float] | Table) -> Table:
        """By choice, what is known by cut."""
        return np.asarray(by_cut)[self.row_of]


class ComputeTimes:
    """Seconds of nodes on one chip of a mesh."""

    def __init__(self, chip: Chip, mesh: Mesh, stores: OpPrices) -> None:
        self.chip = chip
        self.mesh = mesh
        self.prices = stores
        self._parts_of: dict[Cuts, int] = {}
        self._even: dict[tuple[bool, Op], float] = {}
        # Ops with one rule are alike in all but what they read, and are many.
        self._works: dict[tuple[int, int], _Works] = {}
        self._written: dict[tuple[int, _Axes], list[_Collective]] = {}

    def seconds(self, node: Node, choices: Sequence[Strategy]) -> Table:
        """Of one run, by choice, collectives left out."""
        op, rule = node.op, node.rule
        if op is None or rule is None or has_trait(op.kind, Trait.ALIASES_OPERAND):
            return np.zeros(len(choices))
        works = self._works_of(node, choices)
        if kernel_of(op) is not None:
            return works.spread([self._kernel_s(node, p) for p in works.parts])
        seconds, few = self._by(self.prices, op, node, works), self.prices.few
        if few is not None and op in few.images:
            value, dim = few.images[op]
            dims = next(dims for v, dims in _values(op, node) if v is value)
            images = value.shape[dim] * works.share((dims[dim],))
            is_few = images < few.most + 0.5  # they are whole but for rounding
            if is_few.any():
                in_space = self._by(few.stores, op, node, works)
                seconds = np.where(is_few, in_space, seconds)
        return works.spread(seconds)

    def _by(self, stores: OpPrices, op: Op, node: Node, works: _Works) -> Table:
        """Seconds of an op by such prices, by how it is cut."""
        seconds = stores.launch.get(op, 0.0) + stores.vector.get(op, 0.0) * works.flops
        seconds += stores.matrix.get(op, 0.0) * works.matrix_s
        memory_s, vector_s = 0.0, works.flops / self.chip.vector_flops_per_s
        for touch, dims in _touches(stores, op, node):
            share = works.share(dims)
            seconds += touch.seconds * share
            memory_s += touch.memory_s * share
            vector_s += touch.vector_s * share
        if op not in stores.covered:
            # What the unit takes at an even share, the others in it may take up.
            alone_s = roofline_s(works.matrix_s, memory_s, vector_s)
            seconds = np.maximum(seconds, alone_s - self._even_s(stores, op))
        return seconds

    def collectives(self, node: Node, strategy: Strategy) -> list[_Collective]:
        """(kind, axes, bytes) of those that a rule writes for its special factors."""
        key = id(node.rule), strategy.axes
        known = self._written.get(key)
        if known is None:
            known = self._written[key] = self._write(node, strategy)
        return known

    def _write(self, node: Node, strategy: Strategy) -> list[_Collective]:
        op, rule = node.op, node.rule
        parts = self._parts(strategy)
        if op is None or rule is None or rule.expand is None:
            return []
        if not any(parts.get(f, 1) > 1 for f in rule.special):
            return []
        axes = dict(strategy.axes)
        every = range(len(rule.sizes))
        cut = OpCut(
            tuple(axes.get(f, ()) for f in every), tuple(parts.get(f, 1) for f in every)
        )
        builder = Builder(self.mesh)
        rule.expand(builder, op, _local_atoms(op.operands, rule.operands, parts), cut)
        return [
            (each.kind, tuple(each.params["axes"]), _larger_bytes(each, self.prices))  # pyright: ignore[reportArgumentType]
            for each in builder.ops
            if each.kind in COLLECTIVES
        ]

    def local_bytes(self, value: Value, cuts: Cuts) -> float:
        """Bytes of one device's part."""
        return self.prices.layout.num_bytes(value) / self.parts(cuts)

    def parts(self, cuts: Cuts) -> int:
        """Into how many parts a value is cut."""
        known = self._parts_of.get(cuts)
        if known is None:
            known = math.prod(self.mesh.size(axes) for axes in cuts)
            self._parts_of[cuts] = known
        return known

    def _parts(self, strategy: Strategy) -> dict[int, int]:
        return {f: self.mesh.size(axes) for f, axes in strategy.axes}

    def _kernel_s(self, node: Node, parts: Mapping[int, int]) -> float:
        local = _local_op(node, parts)
        return kernel_time(local, work_of(local), KernelTraffic(0), self.chip).seconds

    def _works_of(self, node: Node, choices: Sequence[Strategy]) -> _Works:
        key = id(node.rule), id(choices)
        known = self._works.get(key)
        if known is None:
            known = self._works[key] = self._count(node, choices)
        return known

    def _count(self, node: Node, choices: Sequence[Strategy]) -> _Works:
        rule = node.rule
        assert rule is not None
        rows = {s.axes: 0 for s in choices}  # what becomes of sums changes nothing
        rows = {axes: row for row, axes in enumerate(rows)}
        parts: list[dict[int, int]] = []
        flops: list[float] = []
        in_matrix_s: list[float] = []
        for axes in rows:
            cut = self._parts(Strategy(axes))
            parts.append(cut)
            # What a rule expands is no op of a smaller size, but takes a share.
            is_special = any(cut.get(f, 1) > 1 for f in rule.special)
            local = _local_op(node, {} if is_special else cut)
            share = 1 / math.prod(cut.values()) if is_special else 1.0
            flops.append(share * vector_flops(local, work_of(local)))
            in_matrix_s.append(share * matrix_s(local, self.chip))
        row_of = np.array([rows[s.axes] for s in choices])
        return _Works(
            (rule, choices), parts, np.array(flops), np.array(in_matrix_s), row_of
        )

    def _even_s(self, stores: OpPrices, op: Op) -> float:
        """Seconds of an even share of an op by itself."""
        key = stores is self.prices, op
        known = self._even.get(key)
        if known is None:
            touches = stores.touches.get(op, {}).values()
            vector_s = vector_flops(op, work_of(op)) / self.chip.vector_flops_per_s
            vector_s += sum(touch.vector_s for touch in touches)
            memory_s = sum(touch.memory_s for touch in touches)
            whole = float(roofline_s(matrix_s(op, self.chip), memory_s, vector_s))
            known = self._even[key] = whole / stores.num_devices
        return known


def _touches(
    stores: OpPrices, op: Op, node: Node
) -> Iterator[tuple[AccessPrice, Dims]]:
    """What an op reads and writes, and the factors of its dims."""
    touches = stores.touches.get(op, {})
    for value, dims in _values(op, node):
        if value in touches:
            yield touches[value], dims


def _values(op: Op, node: Node) -> Iterator[tuple[Value, Dims]]:
    """The values that an op reads and writes, each once, and the factors of their dims."""
    assert node.rule is not None
    sides = (op.operands, node.rule.operands), (op.results, node.rule.results)
    told: set[Value] = set()
    for atoms, side in sides:
        for atom, dims in zip(atoms, side, strict=True):
            if isinstance(atom, Value) and atom not in told:
                told.add(atom)
                yield atom, dims


def _local_op(node: Node, parts: Mapping[int, int]) -> Op:
    op, rule = node.op, node.rule
    assert op is not None
    assert rule is not None
    if not parts:
        return op
    operands = _local_atoms(op.operands, rule.operands, parts)
    results = _local_atoms(op.results, rule.results, parts)
    params = op.params
    if rule.local_params is not None:
        shapes = tuple(o.shape for o in operands), tuple(r.shape for r in results)
        params = rule.local_params(op, *shapes)
    return replace(op, operands=operands, results=results, params=params)  # pyright: ignore[reportArgumentType]


def _local_atoms(
    atoms: Sequence[Atom], sides: Sequence[Dims], parts: Mapping[int, int]
) -> tuple[Atom, ...]:
    return tuple(
        Value(_local_shape(a.shape, dims, parts), a.dtype)
        if isinstance(a, Value)
        else a
        for a, dims in zip(atoms, sides, strict=True)
    )


def _local_shape(
    shape: tuple[int, ...], dims: Dims, parts: Mapping[int, int]
) -> tuple[int, ...]:
    return tuple(
        n // math.prod(parts.get(f, 1) for f in fs)
        for n, fs in zip(shape, dims, strict=True)
    )


def _larger_bytes(op: Op, stores: OpPrices) -> float:
    sides = ([a for a in op.operands if isinstance(a, Value)], op.results)
    return max(sum(map(stores.layout.num_bytes, side)) for side in sides)
