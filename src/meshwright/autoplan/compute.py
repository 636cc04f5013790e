"""Seconds that a node computes on one device, cut as a strategy says.

What is stored and what is computed on the fly is taken from the program before it is
cut: cutting seldom changes what a compiler fuses.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from meshwright.autoplan.strategy import Cuts, Strategy
from meshwright.cost.operation import (
    MOVE_FLOPS,
    TRANSCENDENTAL_FLOPS,
    Traffic,
    unit_time,
)
from meshwright.cost.padding import fills_matrix_unit
from meshwright.ir import Atom, Op, Program, Value
from meshwright.machine import Chip, Mesh
from meshwright.propagate import Node
from meshwright.rules import COLLECTIVES, Builder, Cut, work_of
from meshwright.rules.rule import Dims
from meshwright.simulate.fusion import fuse
from meshwright.simulate.layout import Layout
from meshwright.simulate.narrow import narrow_values
from meshwright.simulate.rules import RULES
from meshwright.simulate.unit import SAME_MEMORY, Kind, Unit, kind_of


@dataclass(frozen=True, slots=True)
class Stores:
    """What passes through main memory in a program.

    layout: bytes of values. reads: per op, how often it reads what. writes: values that
    are stored. roots: ops that start something.
    """

    layout: Layout
    units: tuple[Unit, ...]
    reads: Mapping[Op, Counter[Value]]
    writes: frozenset[Value]
    roots: frozenset[Op]


def stores_of(program: Program, chip: Chip, compiler: str) -> Stores:
    """What a compiler stores of a program."""
    rules = RULES[compiler]
    layout = Layout(chip.tile, narrow_values(program) if rules.narrows else ())
    units = fuse(program, layout, rules)
    readers = _readers(program)
    reads: dict[Op, Counter[Value]] = {}
    writes: set[Value] = set()
    roots: set[Op] = set()
    for unit in _all_units(units):
        roots.add(unit.root)
        writes.update(unit.writes)
        for value in unit.reads:
            op = _reader(unit, value, readers)
            reads.setdefault(op, Counter())[value] += 1
    return Stores(layout, units, reads, frozenset(writes), frozenset(roots))


def _all_units(units: Iterable[Unit]) -> Iterable[Unit]:
    for unit in units:
        yield unit
        for body in unit.bodies:
            yield from _all_units(body)


def _readers(program: Program) -> dict[Value, list[Op]]:
    """Per stored value the ops that read it, under whatever name of the same memory."""
    found: dict[Value, list[Op]] = {}
    origin: dict[Value, Value] = {}
    for op in program.walk():
        operands = [v for v in op.operands if isinstance(v, Value)]
        if op.kind in SAME_MEMORY and operands:
            for result in op.results:
                origin[result] = origin.get(operands[0], operands[0])
            continue
        for value in operands:
            found.setdefault(origin.get(value, value), []).append(op)
    return found


def _reader(unit: Unit, value: Value, readers: Mapping[Value, list[Op]]) -> Op:
    """The op of a unit that reads a value: its root, or one that it takes in."""
    ops = readers.get(value, [])
    if unit.root in ops or not ops:
        return unit.root
    loops = [op for op in ops if kind_of(op) is Kind.LOOP]
    return loops[0] if loops else unit.root


class Compute:
    """Seconds of nodes on one chip of a mesh."""

    def __init__(self, chip: Chip, mesh: Mesh, stores: Stores) -> None:
        self.chip = chip
        self.mesh = mesh
        self.stores = stores
        self._rate = chip.vector_flops_per_s
        self._parts_of: dict[Cuts, int] = {}

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
        moved = elements = 0.0
        for value, times, dims in self._traffic(op, node):
            share = times / math.prod(parts.get(f, 1) for fs in dims for f in fs)
            moved += share * self.stores.layout.num_bytes(value)
            elements += share * math.prod(value.shape)
        work = work_of(local)
        is_product = fills_matrix_unit(local)
        if op in self.stores.roots or is_product:
            traffic = Traffic(moved, 0 if is_product else int(elements))
            return unit_time(local, work, traffic, self.chip).seconds
        vector = work.flops + TRANSCENDENTAL_FLOPS * work.transcendentals
        vector += MOVE_FLOPS * elements
        return max(vector / self._rate, moved / self.chip.hbm_bytes_per_s)

    def _traffic(self, op: Op, node: Node) -> Iterable[tuple[Value, float, Dims]]:
        """What an op reads and writes: value, times, and the factors of its dims."""
        assert node.rule is not None
        reads = self.stores.reads.get(op, Counter[Value]())
        direct: set[Value] = set()
        for atom, dims in zip(op.operands, node.rule.operands, strict=True):
            if isinstance(atom, Value) and atom in reads and atom not in direct:
                direct.add(atom)
                yield atom, reads[atom], dims
        widest = max((*node.rule.operands, *node.rule.results), key=len, default=())
        for value, times in reads.items():
            if value not in direct:  # under another name, so in another shape
                yield value, times, widest
        for result, dims in zip(op.results, node.rule.results, strict=True):
            if result in self.stores.writes:
                yield result, 1, dims


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
