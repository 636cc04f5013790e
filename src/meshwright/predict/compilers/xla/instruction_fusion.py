"""Which ops run together, and so which values are ever written to memory.

A compiler does not store what an elementwise op makes: its readers compute it where
they need it. So a device program falls into *units*, each with one op at its root and
the elementwise ops that feed it, and only roots write. The rules are XLA's in the main:

- elementwise ops, broadcasts, slices and other moves of single elements are computed by
  their readers, again by each, unless there are several and reading what they are
  computed from takes more than reading them;
- what is only given in more bits is stored so for those alone who cannot compute it;
- reductions and products take such producers in, and write;
- what every reader takes in is written only where it leaves the program or a reader,
  such as a collective, a loop or a sort, needs it in memory;
- reshapes and their like are the same memory under another name.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from meshwright.predict.compilers.cpu.breadth_first import breadth_first
from meshwright.predict.compilers.cpu.library_calls import is_unary, takers
from meshwright.predict.compilers.rules import TPU, Rules
from meshwright.predict.compilers.tpu.duplication import Made
from meshwright.predict.compilers.tpu.late_fills import FILLED, filled_late
from meshwright.predict.compilers.tpu.softmax_fusion import join_softmaxes
from meshwright.predict.compilers.xla.aliasing import in_place, overwritten, replaced
from meshwright.predict.compilers.xla.control_flow import (
    carried_anew,
    is_cut_in,
    open_region,
)
from meshwright.predict.compilers.xla.dataflow import Flow
from meshwright.predict.compilers.xla.fusion import (
    TAKES_IN,
    Fusion,
    FusionKind,
    widens,
)
from meshwright.predict.compilers.xla.layouts import Layout
from meshwright.predict.compilers.xla.output_fusion import with_epilogues
from meshwright.predict.compilers.xla.producers import PART, Fed
from meshwright.predict.roofline.padding import uses_matrix_unit
from meshwright.program.ir import Op, Program, Value, num_bytes
from meshwright.program.ops import OpWork, Trait, has_trait, work_of


def fuse(
    program: Program, layout: Layout | None = None, rules: Rules = TPU
) -> tuple[Fusion, ...]:
    """The units of a program, in the order in which they run."""
    units = _Fusion(program, layout or Layout(), rules).units()
    if rules.calls_library:
        return breadth_first(units, program)
    units = with_epilogues(units, program)
    return filled_late(units) if rules.fills_late else units


_SLACK = 1.25
"""Bytes that may be read for a value of one byte: itself, and vectors beside it."""

_SUNK = 4
"""Times that a value must be larger than what it repeats for a region to make it."""


class _Fusion:
    """What is known while units are formed.

    links: by value with one reader, which computes it whatever that takes, the op that
        makes it. They are many: what hangs on them is only looked at from the end.
    fed: by other value that readers may compute, what they compute and read for it.
    takers: the readers of such a value that do; all of them where it is not here.
    has_parts: whether some op takes a device's own part of a value.
    """

    def __init__(self, program: Program, layout: Layout, rules: Rules) -> None:
        self.flow = Flow(program, layout)
        if rules.joins_softmax:
            join_softmaxes(self.flow, rules.joins_softmax)
        self.layout = layout
        self.rules = rules
        self.links = {} if rules.calls_library else self.flow.links()
        self.fed: dict[Value, Fed] = {}
        self.takers: dict[Value, frozenset[Op]] = {}
        self.has_parts = PART in {op.kind for op in program.ops}

    def units(self) -> tuple[Fusion, ...]:
        """One for each op that writes or has an effect.

        Makers come before readers, so that one walk decides on all values.
        """
        library = self.rules.calls_library
        decide = self._for_library if library else self._for_readers
        found: list[Fusion] = []
        within = set(self.links.values())
        kinds = self.flow.kinds.items()
        for op, kind in [each for each in kinds if each[0] not in within]:
            fed = self._taken_in(op)
            stored = decide(op, kind, fed)
            if op.bodies:
                found += self._roundings(op)
            if (stored or op.has_effect) and not has_trait(
                op.kind, Trait.ALIASES_OPERAND
            ):
                found.append(self._unit(op, kind, fed, stored))
        return tuple(found)

    def _roundings(self, op: Op) -> list[Fusion]:
        """Units that round what a region is the first to read so."""
        found: list[Fusion] = []
        for value in self.flow.operands[op]:
            cast = self.flow.casts.pop(value, None)
            if cast is not None:
                (rounded,) = self.flow.operands[cast]
                fed = Fed({}, {rounded: None})
                found.append(self._unit(cast, FusionKind.LOOP, fed, cast.results))
        return found

    def _taken_in(self, op: Op) -> Fed:
        """What an op computes itself, and reads."""
        links, fed, operands = self.links.get, self.fed, self.flow.operands
        ops: dict[Op, OpWork] = {}
        reads: dict[Value, None] = {}
        chain: list[Op] = []
        waiting = operands[op][::-1]
        while waiting:
            value = waiting.pop()
            link = links(value)
            if link is not None:
                chain.append(link)
                waiting += operands[link][::-1]
                continue
            known = self._fed_to(op, value) if value in fed else None
            if known is None:
                reads[value] = None
            else:
                ops |= known.ops
                reads |= known.reads
        for link in reversed(chain):
            ops[link] = work_of(link)
        return Fed(ops, reads)

    def _fed_to(self, op: Op, value: Value) -> Fed | None:
        """What an op computes and reads for a value; None for what is stored for it."""
        fed = self.fed.get(value)
        if fed is None or (value in self.takers and op not in self.takers[value]):
            return None
        return fed

    def _for_readers(self, op: Op, kind: FusionKind, fed: Fed) -> tuple[Value, ...]:
        """Those results that are written, since not all of their readers compute them."""
        stored: list[Value] = []
        carried = carried_anew(op) if op.bodies else ()
        for value in op.results:
            used_by = self.flow.readers.get(value, ())
            if value in self.flow.stored or value in carried:
                stored.append(value)
            elif kind is FusionKind.LOOP and self._is_computed_again(
                value, op, fed, used_by
            ):
                self.fed[value] = fed.with_op(op, work_of(op))
            elif used_by and widens(op) and self._is_outside_regions(used_by):
                # Who can, takes it from fewer bits.
                found = frozenset(r for r in used_by if self._takes_in(r, value))
                self.takers[value] = found
                self.fed[value] = fed.with_op(op, work_of(op))
                if not found.issuperset(used_by):
                    stored.append(value)
            elif used_by or op.has_effect:
                stored.append(value)
        return tuple(stored)

    def _is_outside_regions(self, readers: Sequence[Op]) -> bool:
        return all(
            self.flow.kinds[reader] is not FusionKind.REGION for reader in readers
        )

    def _for_library(self, op: Op, kind: FusionKind, fed: Fed) -> tuple[Value, ...]:
        """Those results that some reader needs stored; the others compute them."""
        del kind  # a library's own kinds differ
        stored: list[Value] = []
        for value in op.results:
            used_by = self.flow.readers.get(value, ())
            within = self._only_within(op, fed.ops)
            found = takers(op, used_by, within, self._is_unary(op))
            if found:
                self.takers[value] = frozenset(found)
                self.fed[value] = fed.with_op(op, work_of(op))
            if value in self.flow.stored or len(found) < len(used_by):
                stored.append(value)
        return tuple(stored)

    def _is_computed_again(
        self, value: Value, op: Op, fed: Fed, used_by: Sequence[Op]
    ) -> bool:
        """Whether all readers of what an elementwise op makes compute it."""
        kinds = self.flow.kinds
        inner = [reader for reader in used_by if kinds[reader] is not FusionKind.LOOP]
        for reader in inner:
            if not self._takes_in(reader, value):
                return False
        if len(used_by) > 1 and not self._pays_again(value, op, fed, used_by):
            return False
        return not (inner and self._ends_a_product(op, fed))

    def _pays_again(
        self, value: Value, op: Op, fed: Fed, used_by: Sequence[Op]
    ) -> bool:
        """Whether several readers compute a value rather than have it stored."""
        kinds, balance = self.flow.kinds, self.rules.balance
        if balance and all(kinds[reader] is FusionKind.PRODUCT for reader in used_by):
            made = Made(value, op, fed, self.flow.operands, self.layout.num_bytes)
            read = made.read_bytes
            if all(balance.waits(reader, read) for reader in used_by):
                kept = made.kept_bytes(used_by)
                return balance.is_computed_again(used_by, made.work, read, kept)
        is_small = sum(map(num_bytes, fed.reads)) <= _SLACK * num_bytes(value)
        return is_small or self.flow.meets(value)

    def _takes_in(self, reader: Op, value: Value) -> bool:
        """Whether a reader computes an elementwise operand where it needs it."""
        kind = self.flow.kinds[reader]
        if reader.kind == FILLED and self.rules.fills_late:
            return value is self.flow.operand(reader, 0) and self._is_sunk(value)
        if kind is FusionKind.REGION:
            return self._is_sunk(value) and not self._is_cut_inside(reader, value)
        return kind in TAKES_IN and not self.flow.is_reshaped_for(reader, value)

    def _is_sunk(self, value: Value) -> bool:
        """Whether a region makes an operand itself: what only repeats a smaller value."""
        op = self.flow.maker[value]
        return has_trait(op.kind, Trait.REPEATS) and _SUNK * sum(
            map(num_bytes, self.flow.operands[op])
        ) <= num_bytes(value)

    def _is_cut_inside(self, region: Op, value: Value) -> bool:
        """Whether a region's bodies take a device's own part of an operand.

        Then the whole is made before, once.
        """
        return is_cut_in(region, frozenset(self.flow.insides(region, value)))

    def _ends_a_product(self, op: Op, fed: Fed) -> bool:
        """Whether a result is better written by the product that it is made of.

        That is so where nobody else needs the product as such, and what comes next is no
        part of the same element by element.
        """
        result, num_bytes = op.results[0], self.layout.num_bytes
        kinds, maker = self.flow.kinds, self.flow.maker
        products = [
            value
            for value in fed.reads
            if value in maker and kinds[maker[value]] is FusionKind.PRODUCT
        ]
        return any(
            math.prod(value.shape) == math.prod(result.shape)
            and num_bytes(value) > num_bytes(result)
            and self._is_only_for(value, op, fed.ops)
            for value in products
        )

    def _is_only_for(self, value: Value, op: Op, ops: Collection[Op]) -> bool:
        """Whether `op` and the `ops` that it takes in are all that hangs on a value."""
        within = {op, *ops}
        depends = {value}
        for each in ops:
            if not depends.isdisjoint(self.flow.operands[each]):
                depends.update(each.results)
        readers = self.flow.readers
        return all(within.issuperset(readers.get(v, ())) for v in depends)

    def _only_within(self, op: Op, ops: Collection[Op]) -> Collection[Op] | None:
        """`ops`, that `op` takes in; None if others read of what is as large as it."""
        size = math.prod(op.results[0].shape)
        made = (r for each in ops for r in each.results)
        large = [r for r in made if math.prod(r.shape) >= size]
        chain, readers = {op, *ops}, self.flow.readers
        alone = all(chain.issuperset(readers.get(r, ())) for r in large)
        return ops if alone else None

    def _is_unary(self, op: Op) -> bool:
        operands, maker = self.flow.operands[op], self.flow.maker
        repeated = [
            v
            for v in operands
            if v in maker and has_trait(maker[v].kind, Trait.REPEATS)
        ]
        return is_unary(op, operands, repeated)

    def _unit(
        self, op: Op, kind: FusionKind, fed: Fed, writes: tuple[Value, ...]
    ) -> Fusion:
        bodies: tuple[tuple[Fusion, ...], ...] = ()
        if op.bodies:
            computed = {*self.fed, *self.links}
            open_region(op, self.layout, self.rules, computed)
            bodies = tuple(fuse(body, self.layout, self.rules) for body in op.bodies)
        library = self.rules.calls_library
        taken = overwritten(op, kind, fed, self.flow, self.rules)
        replaces = replaced(op, self.flow) if op.bodies and not library else {}
        shares = fed.shares(op, self.flow.operands) if self.has_parts else {}
        reads, work = tuple(fed.reads), fed.work_with(work_of(op), shares)
        parts = {v: s for v in reads if (s := shares.get(v, 1.0)) < 1} if shares else {}
        place = in_place(op, kind, reads, self.flow)
        return Fusion(
            op, kind, reads, writes, work, place, bodies,
            overwrites=taken, replaces=replaces, shares=parts,
            sides=self._sides(op),
        )  # fmt: skip

    def _sides(self, op: Op) -> tuple[tuple[Value, ...], ...]:
        """By operand of a product the stored values that it is computed from."""
        if op.kind != "dot_general" or not uses_matrix_unit(op):
            return ()
        sides = [(v, self._fed_to(op, v)) for v in self.flow.operands[op][:2]]
        return tuple([(v,) if fed is None else tuple(fed.reads) for v, fed in sides])
