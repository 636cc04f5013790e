"""Who makes and who reads each value of a program, by the name under which it was made.

Reshapes and their like are the same memory under another name, so they are no makers.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

from meshwright.predict.compilers.xla.fusion import (
    BARRIER,
    TAKES_IN,
    FusionKind,
    kind_of,
)
from meshwright.predict.compilers.xla.layouts import Layout
from meshwright.program.ir import Atom, Op, Program, Value
from meshwright.program.ops import Trait, has_trait

_FAR = 8
"""Elementwise ops within which paths that part come together, if they do."""


class Flow:
    """What each op of a program reads, and what reads what it makes.

    kinds, operands: by op that computes something, in the order of the program; an
        operand that a region's bodies keep as bfloat16 is the cast of the value.
    maker: by value. readers: by value, once for each time that an op reads it.
    stored: what is in memory whoever reads it: outputs, what comes to a barrier, and
        what casts below read.
    casts: by result, what rounds before a loop what its body would round in every turn.
    """

    def __init__(self, program: Program, layout: Layout) -> None:
        self.program = program
        self.casts: dict[Value, Op] = {}
        self._rounded_by: dict[Value, Op] = {}
        self._origin = _origins(program)
        self._places: dict[Op, int] = {}
        self._narrow = layout.narrow
        origin = self._origin.get
        ops = [
            op
            for op in program.ops
            if not has_trait(op.kind, Trait.ALIASES_OPERAND) or not _only_renames(op)
        ]
        self.kinds = {op: kind_of(op) for op in ops}
        self.maker = {result: op for op in ops for result in op.results}
        self.operands = {
            op: [origin(v, v) for v in op.operands if isinstance(v, Value)]
            for op in ops
        }
        if self._narrow:
            for op in ops:
                if op.bodies:
                    self.operands[op] = self._rounded(op, self.operands[op])
        self.readers: dict[Value, list[Op]] = {}
        readers = self.readers
        for op in ops:
            for value in self.operands[op]:
                if value in readers:
                    readers[value].append(op)
                else:
                    readers[value] = [op]
        kept = [*program.outputs, *_before_barriers(program)]
        self.stored = {
            origin(v, v) for v in kept if isinstance(v, Value)
        } | self._rounded_by.keys()

    def operand(self, op: Op, position: int) -> Value | None:
        """An operand as an op reads it; None for a literal."""
        if not isinstance(op.operands[position], Value):
            return None
        before = sum(isinstance(v, Value) for v in op.operands[:position])
        return self.operands[op][before]

    def links(self) -> dict[Value, Op]:
        """By value that one elementwise op makes for one other alone, the first."""
        kinds, maker, stored, loop = (
            self.kinds,
            self.maker,
            self.stored,
            FusionKind.LOOP,
        )
        return {
            value: made_by
            for value, used_by in self.readers.items()
            if len(used_by) == 1
            and kinds[used_by[0]] is loop
            and value not in stored
            and (made_by := maker.get(value)) is not None
            and kinds[made_by] is loop
            and len(made_by.results) == 1
        }

    def meets(self, value: Value) -> bool:
        """Whether all that readers make of a value meets in one op, whose result is stored.

        That is so of `x` in `x * logistic(x)` if that is written: each path from `x` is of
        elementwise ops, and leads there. The result is taken to be stored where several
        read it, as most such are, or where somebody needs it in memory.
        """
        self._places = self._places or {op: i for i, op in enumerate(self.kinds)}
        ops = set(self.readers.get(value, ()))
        for _ in range(_FAR):
            first = min(ops, key=self._places.__getitem__)
            if not has_trait(first.kind, Trait.ELEMENTWISE):
                return False
            (made,) = first.results
            used_by = self.readers.get(made, ())
            if len(ops) == 1:
                is_taken_in = all(self.kinds[op] in TAKES_IN for op in used_by)
                return made in self.stored or not is_taken_in or len(used_by) > 1
            if made in self.stored or not used_by:
                return False
            ops.remove(first)
            ops.update(used_by)
        return False

    def is_reshaped_for(self, reader: Op, value: Value) -> bool:
        """Whether a convolution sees an operand in a shape that it was not made in."""
        if reader.kind != "conv_general_dilated":
            return False
        return any(
            made is value and read.shape != made.shape
            for read, made in zip(reader.operands, self.operands[reader], strict=True)
        )

    def insides(self, op: Op, value: Value) -> list[Value]:
        """What a region's bodies call a value that it reads."""
        return [
            op.bodies[body].inputs[i]
            for wire in op.wires
            if wire.operand is not None
            for operand in [op.operands[wire.operand]]
            if isinstance(operand, Value)
            and self._origin.get(operand, operand) is value
            for body, i in wire.inputs
        ]

    def _rounded(self, op: Op, operands: list[Value]) -> list[Value]:
        """A region's operands, those that its bodies keep as bfloat16 rounded before."""
        found: list[Value] = []
        for value in operands:
            if value in self._narrow or not self._reads_narrow(op, value):
                found.append(value)
                continue
            cast = self._rounded_by.get(value)
            if cast is None:
                made = Value(value.shape, "bfloat16")
                cast = Op("convert_element_type", (value,), (made,), source=op.source)
                self._rounded_by[value] = self.casts[made] = self.maker[made] = cast
                self.operands[cast] = [value]
            found.append(cast.results[0])
        return found

    def _reads_narrow(self, op: Op, value: Value) -> bool:
        """Whether a region's bodies keep an operand as bfloat16."""
        insides = self.insides(op, value)
        return bool(insides) and all(v in self._narrow for v in insides)


def stored_outputs(program: Program) -> tuple[Atom, ...]:
    """A program's outputs by the names under which they were made."""
    known = _OUTPUTS.get(program)
    if known is None:
        origins = _origins(program)
        known = _OUTPUTS[program] = tuple(
            origins.get(v, v) if isinstance(v, Value) else v for v in program.outputs
        )
    return known


_OUTPUTS: WeakKeyDictionary[Program, tuple[Atom, ...]] = WeakKeyDictionary()
"""Those of programs that somebody has: all that counts lives asks for them."""


def _origins(program: Program) -> dict[Value, Value]:
    """By value that is another under a new name, the one that was made."""
    found: dict[Value, Value] = {}
    named_so = [op for op in program.ops if has_trait(op.kind, Trait.ALIASES_OPERAND)]
    for op in filter(_only_renames, named_so):
        for result, operand in zip(op.results, op.operands, strict=False):
            assert isinstance(operand, Value), f"{op.kind} of a literal"
            found[result] = found.get(operand, operand)
    return found


def _before_barriers(program: Program) -> list[Atom]:
    return [v for op in program.ops if op.kind == BARRIER for v in op.operands]


def _only_renames(op: Op) -> bool:
    return has_trait(op.kind, Trait.ALIASES_OPERAND) and isinstance(
        op.operands[0], Value
    )
