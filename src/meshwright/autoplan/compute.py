"""Seconds that a node computes on one device, cut as a strategy says."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from meshwright.autoplan.stores import Stores, Touch, vector_flops
from meshwright.autoplan.strategy import Cuts, Strategy
from meshwright.cost.bound import Bound
from meshwright.cost.operation import Traffic, bound_times, unit_time
from meshwright.cost.padding import fills_matrix_unit
from meshwright.ir import Atom, Op, Value
from meshwright.machine import Chip, Mesh
from meshwright.propagate import Node
from meshwright.rules import COLLECTIVES, Builder, Cut, work_of
from meshwright.rules.kernel import kernel_of
from meshwright.rules.rule import Dims
from meshwright.simulate.unit import SAME_MEMORY


class Compute:
    """Seconds of nodes on one chip of a mesh."""

    def __init__(self, chip: Chip, mesh: Mesh, stores: Stores) -> None:
        self.chip = chip
        self.mesh = mesh
        self.stores = stores
        self._parts_of: dict[Cuts, int] = {}
        self._even: dict[Op, float] = {}

    def seconds(self, node: Node, strategy: Strategy) -> float:
        """Of one run, collectives left out."""
        op, rule = node.op, node.rule
        if op is None or rule is None or op.kind in SAME_MEMORY:
            return 0.0
        parts = self._parts(strategy)
        if any(parts.get(f, 1) > 1 for f in rule.special):
            share = math.prod(parts.values())
            return self._seconds(op, op, node, parts) / max(1, share)
        return self._seconds(_local_op(node, parts), op, node, parts)

    def collectives(
        self, node: Node, strategy: Strategy
    ) -> list[tuple[str, tuple[str, ...], float]]:
        """(kind, axes, bytes) of those that a rule writes for its special factors."""
        op, rule = node.op, node.rule
        parts = self._parts(strategy)
        if op is None or rule is None or rule.expand is None:
            return []
        if not any(parts.get(f, 1) > 1 for f in rule.special):
            return []
        axes = dict(strategy.axes)
        every = range(len(rule.sizes))
        cut = Cut(
            tuple(axes.get(f, ()) for f in every), tuple(parts.get(f, 1) for f in every)
        )
        builder = Builder(self.mesh)
        rule.expand(builder, op, _local_atoms(op.operands, rule.operands, parts), cut)
        return [
            (each.kind, tuple(each.params["axes"]), _larger_bytes(each, self.stores))  # pyright: ignore[reportArgumentType]
            for each in builder.ops
            if each.kind in COLLECTIVES
        ]

    def local_bytes(self, value: Value, cuts: Cuts) -> float:
        """Bytes of one device's part."""
        return self.stores.layout.num_bytes(value) / self.parts(cuts)

    def parts(self, cuts: Cuts) -> int:
        """Into how many parts a value is cut."""
        known = self._parts_of.get(cuts)
        if known is None:
            known = math.prod(self.mesh.size(axes) for axes in cuts)
            self._parts_of[cuts] = known
        return known

    def _parts(self, strategy: Strategy) -> dict[int, int]:
        return {f: self.mesh.size(axes) for f, axes in strategy.axes}

    def _seconds(
        self, local: Op, op: Op, node: Node, parts: Mapping[int, int]
    ) -> float:
        """Of a part of an op, by the slopes; at least what it takes by itself.

        What its unit takes at an even share, the others in it may take up.
        """
        if kernel_of(local) is not None:
            return unit_time(local, work_of(local), Traffic(0), self.chip).seconds
        stores = self.stores
        flops, matrix_s = vector_flops(local), self._matrix_s(local)
        seconds = stores.launch.get(op, 0.0) + stores.vector.get(op, 0.0) * flops
        seconds += stores.matrix.get(op, 0.0) * matrix_s
        memory_s, vector_s = 0.0, flops / self.chip.vector_flops_per_s
        for touch, dims in self._touches(op, node):
            share = 1 / math.prod(parts.get(f, 1) for fs in dims for f in fs)
            seconds += share * touch.seconds
            memory_s += share * touch.memory_s
            vector_s += share * touch.vector_s
        if op in stores.covered:
            return seconds
        alone_s = max(matrix_s, memory_s, vector_s)
        return max(seconds, alone_s - self._even_s(op))

    def _even_s(self, op: Op) -> float:
        """Seconds of an even share of an op by itself."""
        known = self._even.get(op)
        if known is None:
            touches = self.stores.touches.get(op, {}).values()
            vector_s = vector_flops(op) / self.chip.vector_flops_per_s
            vector_s += sum(touch.vector_s for touch in touches)
            memory_s = sum(touch.memory_s for touch in touches)
            whole = max(self._matrix_s(op), memory_s, vector_s)
            known = self._even[op] = whole / self.stores.num_devices
        return known

    def _matrix_s(self, op: Op) -> float:
        if not fills_matrix_unit(op):
            return 0.0
        return bound_times(op, work_of(op), Traffic(0), self.chip)[Bound.MATRIX]

    def _touches(self, op: Op, node: Node) -> Iterable[tuple[Touch, Dims]]:
        """What an op reads and writes, and the factors of its dims."""
        assert node.rule is not None
        touches = self.stores.touches.get(op, {})
        sides = (op.operands, node.rule.operands), (op.results, node.rule.results)
        told: set[Value] = set()
        for atoms, side in sides:
            for atom, dims in zip(atoms, side, strict=True):
                if isinstance(atom, Value) and atom in touches and atom not in told:
                    told.add(atom)
                    yield touches[atom], dims


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


def _larger_bytes(op: Op, stores: Stores) -> float:
    sides = ([a for a in op.operands if isinstance(a, Value)], op.results)
    return max(sum(map(stores.layout.num_bytes, side)) for side in sides)
