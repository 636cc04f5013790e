"""Which float32 values a TPU keeps as bfloat16.

Its matrix unit rounds float32 operands to bfloat16, unless a program asks for more. So
XLA keeps a value that only such products read, be it by way of moves or through the body
of a loop, in half the memory, and gathers it in half the time; sums of it are taken while
it is made, as those for the gradient of a bias. (XLA calls this bfloat16 propagation.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from meshwright.predict.compilers.xla.fusion import FusionKind, kind_of
from meshwright.program.ir import Atom, Op, Program, Value
from meshwright.program.ops import Trait, has_trait, ops_with

_MOVES = frozenset(
    {
        *ops_with(Trait.MOVES), *ops_with(Trait.ALIASES_OPERAND),
        *ops_with(Trait.CHOOSES), "abs", "all_gather", "all_to_all", "copy_p",
        "dynamic_update_slice", "permute", "reduce_max", "reduce_min",
        "reduce_precision", "regroup",
    }
    - {"split", "stack", "stop_gradient", "tile", "unstack"}  # not seen compiled
)  # fmt: skip
"""Ops that give elements of their operands back: rounded before is rounded after."""

_MAY_ACCEPT = _MOVES | {
    *ops_with(Trait.CONTRACTION),
    "convert_element_type",
    "reduce_sum",
}
"""Ops that may read bfloat16 as well as float32; all others want what they ask for."""

_INDICES = {"dynamic_slice": 1, "dynamic_update_slice": 2, "gather": 1}
"""From which operand on they are indices, for moves that have some."""


def narrow_values(program: Program) -> frozenset[Value]:
    """The float32 values of a device program, those of its bodies included, kept so."""
    search = _Search()
    search.visit(program, [False] * len(program.outputs))
    return frozenset(search.narrow)


class _Readers:
    """What the readers of each value that are known so far say of bfloat16."""

    def __init__(self) -> None:
        self.accepted: set[Value] = set()
        self.refused: set[Atom] = set()

    def note(self, atoms: Sequence[Atom], accepts: Sequence[bool]) -> None:
        """Note what an op says of each of its operands."""
        for atom, accepted in zip(atoms, accepts, strict=True):
            if not accepted:
                self.refused.add(atom)
            elif isinstance(atom, Value):
                self.accepted.add(atom)

    def accept(self, value: Value) -> bool:
        """Whether it is float32, has readers, and all of them accept it as bfloat16."""
        return (
            value in self.accepted
            and value not in self.refused
            and value.dtype == "float32"
        )


class _Search:
    """Walks against the order of the program, so that readers come before makers."""

    def __init__(self) -> None:
        self.narrow: set[Value] = set()

    def visit(self, program: Program, outputs: Sequence[bool]) -> list[bool]:
        """Whether each input could be narrow, given which outputs may be."""
        readers = _Readers()
        made = {result: op for op in program.ops for result in op.results}
        if self.narrow:
            self.narrow.difference_update(made)  # what an earlier visit found
        readers.note(program.outputs, outputs)
        asked = [op for op in program.ops if op.kind in _MAY_ACCEPT or op.bodies]
        others = [
            op.operands
            for op in program.ops
            if op.kind not in _MAY_ACCEPT and not op.bodies
        ]
        readers.refused.update(*others)
        for op in reversed(asked):
            may_be = [readers.accept(r) for r in op.results]
            # Most ops: nothing to look at.
            if op.kind in _MOVES and False in may_be:
                readers.refused.update(op.operands)
                continue
            if op.bodies:
                accepted = self._region(op, may_be)
            else:
                accepted = [
                    _accepts(op, position, may_be) or _sums(op, made)
                    for position in range(len(op.operands))
                ]
            readers.note(op.operands, accepted)
        for value in readers.accepted:
            maker = made.get(value)
            if maker is not None and _marks(maker, value) and readers.accept(value):
                self.narrow.add(value)
        return [readers.accept(v) for v in program.inputs]

    def _region(self, op: Op, may_be: list[bool]) -> list[bool]:
        """Whether each operand could be narrow; marks what is narrow inside.

        What a loop carries must be so all around it: a carry that its body refuses is
        taken back, until all agree.
        """
        results = list(may_be)
        while True:
            inputs = [
                self.visit(body, self._outputs(op, number, results))
                for number, body in enumerate(op.bodies)
            ]
            refused = [
                wire.result
                for wire in op.wires
                if wire.result is not None
                and results[wire.result]
                and not wire.is_stacked
                and not all(inputs[body][i] for body, i in wire.inputs)
            ]
            if not refused:
                break
            for position in refused:
                results[position] = False
        for result, narrow in zip(op.results, results, strict=True):
            (self.narrow.add if narrow else self.narrow.discard)(result)
        accepted = [False] * len(op.operands)
        for wire in op.wires:
            if wire.operand is not None:
                kept = wire.result is None or wire.is_stacked or results[wire.result]
                inside = [inputs[body][i] for body, i in wire.inputs]
                accepted[wire.operand] = bool(inside) and kept and all(inside)
        self._mark_inputs(op, accepted)
        return accepted

    def _outputs(self, op: Op, number: int, results: list[bool]) -> list[bool]:
        """Which outputs of one body may be narrow."""
        outputs = [False] * len(op.bodies[number].outputs)
        for wire in op.wires:
            for body, position in wire.outputs:
                if body == number and wire.result is not None:
                    outputs[position] = results[wire.result]
        return outputs

    def _mark_inputs(self, op: Op, accepted: list[bool]) -> None:
        """A body's input is narrow where its operand is taken so."""
        for wire in op.wires:
            for body, position in wire.inputs:
                value = op.bodies[body].inputs[position]
                narrow = wire.operand is not None and accepted[wire.operand]
                (self.narrow.add if narrow else self.narrow.discard)(value)


def _marks(maker: Op, value: Value) -> bool:
    """Whether what makes a value can write it as bfloat16; a region says so itself."""
    return not (maker.bodies or maker.has_effect) and maker.results[0] is value


def _accepts(op: Op, position: int, may_be: list[bool]) -> bool:
    """Whether an op reads an operand that is bfloat16 as well as one that is float32."""
    if has_trait(op.kind, Trait.CONTRACTION):
        return _rounds(op)
    if op.kind == "convert_element_type":
        return op.results[0].dtype == "bfloat16" or may_be[0]
    if op.kind not in _MOVES:
        return False
    if op.kind == "select_n":
        return position > 0
    return position < _INDICES.get(op.kind, len(op.operands))


def _sums(op: Op, made: Mapping[Value, Op]) -> bool:
    """Whether an op sums a value in the pass that makes it, before it is rounded."""
    if op.kind != "reduce_sum" or not isinstance(op.operands[0], Value):
        return False
    maker = made.get(op.operands[0])
    return maker is not None and kind_of(maker) in (FusionKind.LOOP, FusionKind.PRODUCT)


def _rounds(op: Op) -> bool:
    """True for products in the unit's own precision."""
    return _is_own(op.params.get("precision"))


@cache
def _is_own(precision: object) -> bool:
    sides = precision if isinstance(precision, tuple) else (precision,)
    return all(p is None or str(p).upper().endswith("DEFAULT") for p in sides)
