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

import math
from collections.abc import Collection, Mapping

from meshwright.ir import Op, Program, Value, num_bytes
from meshwright.rules import work_of
from meshwright.simulate.epilogue import with_epilogues
from meshwright.simulate.layout import Layout
from meshwright.simulate.library import is_in_step, is_loop, is_unary, takers
from meshwright.simulate.order import breadth_first
from meshwright.simulate.rules import TPU, Rules
from meshwright.simulate.unit import SAME_MEMORY, TAKES_IN, Kind, Unit, kind_of


def fuse(
    program: Program, layout: Layout | None = None, rules: Rules = TPU
) -> tuple[Unit, ...]:
    """The units of a program, in the order in which they run."""
    units = _Fusion(program, layout or Layout(), rules).units()
    if rules.calls_library:
        return breadth_first(units, program)
    return with_epilogues(units, program)


_SLACK = 1.25
"""Bytes that may be read for a value of one byte: itself, and vectors beside it."""

_SUNK = 4
"""Times that a value must be larger than what it repeats for a region to make it."""

_REPEATS = frozenset({"broadcast_in_dim", "iota"})


def _needed_whole(body: Program, kinds: Collection[Kind]) -> set[Value]:
    """Values that some op of a body, of none of the kinds, reads from memory."""
    return {
        v
        for op in body.ops
        if kind_of(op) not in kinds
        for v in op.operands
        if isinstance(v, Value)
    }


_Fed = tuple[dict[Op, None], dict[Value, None]]
"""Ops computed on the fly, and the stored values that they read; both in order."""


class _Fusion:
    """What is known while units are formed."""

    def __init__(self, program: Program, layout: Layout, rules: Rules) -> None:
        self.program = program
        self.layout = layout
        self.rules = rules
        self.narrowed: dict[Value, Op] = {}
        self.maker: dict[Value, Op] = {}
        self.origin: dict[Value, Value] = {}
        self.readers: dict[Value, list[Op]] = {}
        for op in program.ops:
            if op.kind in SAME_MEMORY and isinstance(op.operands[0], Value):
                for result, operand in zip(op.results, op.operands, strict=False):
                    assert isinstance(operand, Value), f"{op.kind} of a literal"
                    self.origin[result] = self.origin.get(operand, operand)
                continue
            for result in op.results:
                self.maker[result] = op
            self._narrow_operands(op)
            for value in self.operands(op):
                self.readers.setdefault(value, []).append(op)
        outputs = {
            self.origin.get(v, v) for v in program.outputs if isinstance(v, Value)
        }
        self.stored: set[Value] = set()
        self._fed: dict[Value, _Fed] = {}
        self._takers: dict[Value, frozenset[Op]] = {}
        for value, op in self.maker.items():
            used_by = self.readers.get(value, [])
            if rules.calls_library:
                is_written = self._is_written_for_library(value, op, used_by)
            else:
                is_written = value in outputs or not self._is_computed_again(
                    value, op, used_by
                )
            if value in outputs or (is_written and (used_by or op.has_effect)):
                self.stored.add(value)
        self._open_regions()

    def operands(self, op: Op) -> list[Value]:
        """The values that an op reads, by the name under which they were made."""
        found = [self.origin.get(v, v) for v in op.operands if isinstance(v, Value)]
        if op.bodies and self.narrowed:
            taken = (self.narrowed.get(v) for v in found)
            found = [
                v if cast is None or not self._reads_narrow(op, v) else cast.results[0]
                for v, cast in zip(found, taken, strict=True)
            ]
        return found

    def _narrow_operands(self, op: Op) -> None:
        """Round once, before a loop, what its body would round in every turn."""
        for operand in op.operands if op.bodies and self.layout.narrow else ():
            if not isinstance(operand, Value):
                continue
            value = self.origin.get(operand, operand)
            if value in self.narrowed or value in self.layout.narrow:
                continue
            if self._reads_narrow(op, value):
                cast = Value(value.shape, "bfloat16")
                self.narrowed[value] = self.maker[cast] = Op(
                    "convert_element_type", (value,), (cast,), source=op.source
                )

    def _reads_narrow(self, op: Op, value: Value) -> bool:
        """Whether a region's bodies keep an operand as bfloat16."""
        insides = [
            op.bodies[body].inputs[i]
            for wire in op.wires
            if wire.operand is not None
            for operand in [op.operands[wire.operand]]
            if isinstance(operand, Value) and self.origin.get(operand, operand) is value
            for body, i in wire.inputs
        ]
        return bool(insides) and all(v in self.layout.narrow for v in insides)

    def _is_computed_again(self, value: Value, op: Op, used_by: list[Op]) -> bool:
        """Whether all readers compute it; notes what they then read for it."""
        if kind_of(op) is not Kind.LOOP:
            return False
        if not all(self._takes_in(reader, value) for reader in used_by):
            return False
        ops, reads = self._taken_in(op)
        if len(used_by) > 1 and sum(map(num_bytes, reads)) > _SLACK * num_bytes(value):
            return False
        if self._ends_a_product(op, ops, reads, used_by):
            return False
        self._fed[value] = {**ops, op: None}, reads
        self._takers[value] = frozenset(used_by)
        return True

    def _is_written_for_library(self, value: Value, op: Op, used_by: list[Op]) -> bool:
        """Whether some reader needs it stored; notes what the others read for it."""
        ops, reads = self._taken_in(op)
        found = takers(op, used_by, self._only_within(op, ops), self._is_unary(op))
        if found:
            self._fed[value] = {**ops, op: None}, reads
            self._takers[value] = frozenset(found)
        return len(found) < len(used_by)

    def _only_within(self, op: Op, ops: Mapping[Op, None]) -> Mapping[Op, None] | None:
        """`ops`, that `op` takes in; None if others read of what is as large as it."""
        size = math.prod(op.results[0].shape)
        made = (r for each in ops for r in each.results)
        large = [r for r in made if math.prod(r.shape) >= size]
        chain = {op, *ops}
        alone = all(chain.issuperset(self.readers.get(r, ())) for r in large)
        return ops if alone else None

    def _is_unary(self, op: Op) -> bool:
        operands = self.operands(op)
        repeated = [
            v for v in operands if v in self.maker and self.maker[v].kind in _REPEATS
        ]
        return is_unary(op, operands, repeated)

    def _ends_a_product(
        self,
        op: Op,
        ops: Mapping[Op, None],
        reads: Mapping[Value, None],
        used_by: list[Op],
    ) -> bool:
        """Whether a result is better written by the product that it is made of.

        That is so where nobody else needs the product as such, and what comes next is no
        part of the same element by element.
        """
        if all(kind_of(reader) is Kind.LOOP for reader in used_by):
            return False
        result = op.results[0]
        return any(
            kind_of(maker) is Kind.PRODUCT
            and math.prod(value.shape) == math.prod(result.shape)
            and self.layout.num_bytes(value) > self.layout.num_bytes(result)
            and self._is_only_for(value, op, ops)
            for value in reads
            if (maker := self.maker.get(value)) is not None
        )

    def _is_only_for(self, value: Value, op: Op, ops: Mapping[Op, None]) -> bool:
        """Whether `op` and the `ops` that it takes in are all that hangs on a value."""
        within = {op, *ops}
        depends = {value}
        for each in ops:
            if not depends.isdisjoint(self.operands(each)):
                depends.update(each.results)
        return all(within.issuperset(self.readers.get(v, ())) for v in depends)

    def _takes_in(self, reader: Op, value: Value) -> bool:
        """Whether a reader computes an elementwise operand where it needs it."""
        if kind_of(reader) is Kind.REGION:
            return self._is_sunk(value)
        if reader.kind == "conv_general_dilated" and self.layout.is_regrouped(reader):
            return False
        return kind_of(reader) in TAKES_IN

    def _open_regions(self) -> None:
        """Say which values of bodies need no memory of their own."""
        for op in self.program.ops:
            stacked: list[set[Value]] = [set() for _ in op.bodies]
            for wire in op.wires:
                operand = None if wire.operand is None else op.operands[wire.operand]
                if wire.is_stacked:
                    for body, i in wire.inputs:
                        stacked[body].add(op.bodies[body].inputs[i])
                    self.layout.inside.update(
                        end
                        for body, i in wire.outputs
                        if isinstance(end := op.bodies[body].outputs[i], Value)
                        and self._is_made_inside(op.bodies[body], end)
                    )
                elif operand in self._takers and wire.result is None:
                    self.layout.virtual.update(
                        op.bodies[body].inputs[i] for body, i in wire.inputs
                    )
            for slices, body in zip(stacked, op.bodies, strict=True):
                kinds = {Kind.LOOP} if self.rules.calls_library else TAKES_IN
                self.layout.inside |= slices - _needed_whole(body, kinds)

    def _is_made_inside(self, body: Program, end: Value) -> bool:
        """Whether what a body makes for a stack is written there in the first place."""
        if not self.rules.calls_library:
            return True
        makers = [op for op in body.ops if end in op.results]
        others = any(end in op.operands for op in body.ops)
        return not others and all(map(is_loop, makers))

    def _is_sunk(self, value: Value) -> bool:
        """Whether a region makes an operand itself: what only repeats a smaller value."""
        op = self.maker[value]
        return op.kind in _REPEATS and _SUNK * sum(
            num_bytes(v) for v in self.operands(op)
        ) <= num_bytes(value)

    def units(self) -> tuple[Unit, ...]:
        """One for each op that writes or has an effect."""
        casts = set(self.narrowed.values())
        found: list[Unit] = []
        for op in self.program.ops:
            if op.kind in SAME_MEMORY:
                continue
            for value in self.operands(op) if op.bodies else ():
                cast = self.maker.get(value)
                if cast in casts:
                    casts.remove(cast)
                    found.append(self._unit(cast))
            if op.has_effect or any(r in self.stored for r in op.results):
                found.append(self._unit(op))
        return tuple(found)

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
            tuple(fuse(body, self.layout, self.rules) for body in op.bodies),
            overwrites=self._overwrites(op, ops, reads),
        )

    def _overwrites(
        self, op: Op, ops: Mapping[Op, None], reads: Mapping[Value, None]
    ) -> tuple[Value, ...]:
        """Operands whose memory the result takes over, if they are read no more."""
        if not self.rules.calls_library:
            return ()
        if op.kind.startswith("scatter"):
            return tuple(self.operands(op)[:1])
        chain = [(each, self.operands(each)) for each in (*ops, op)]
        return tuple(v for v in reads if is_in_step(v, chain))

    def _in_place(self, op: Op, reads: Mapping[Value, None]) -> Value | None:
        """The operand of the result's size, for what may overwrite it.

        An update of a slice does; a scatter does not, and elementwise results only
        where the caller gave the memory up.
        """
        if op.kind == "dynamic_update_slice":
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
            more, read = {}, {operand: None}
            if op in self._takers.get(operand, ()):
                more, read = self._fed[operand]
            ops |= more
            reads |= read
        return ops, reads
