"""Bfloat16 propagation: float32 values that a TPU stores as bfloat16.

The matrix unit rounds float32 operands to bfloat16, unless a program asks for more. So
XLA (`BFloat16Propagation`) stores a value as bfloat16 if only such products read it,
directly, through ops that move elements, or in the body of a loop. The value takes half
the memory, and half the time to gather. A sum of it, such as the gradient of a bias, is
computed before the value is rounded.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache

from meshwright.predict.compilers.model.compilation import Compilation
from meshwright.predict.compilers.model.fusion import (
    SPACE_TO_BATCH_COPY,
    FusionKind,
    kind_of,
)
from meshwright.program.ir import Atom, Op, Program, Value
from meshwright.program.ops import Trait, has_trait, ops_with

_MOVES = frozenset(
    {
        *ops_with(Trait.MOVES), *ops_with(Trait.ALIASES_OPERAND),
        *ops_with(Trait.CHOOSES), "abs", "all_gather", "all_to_all", "copy_p",
        "dynamic_update_slice", "permute", "reduce_max", "reduce_min",
        "reduce_precision", SPACE_TO_BATCH_COPY,
    }
    - {"split", "stack", "stop_gradient", "tile", "unstack"}  # not seen compiled
)  # fmt: skip
"""Ops whose result consists of elements of their operands, so that rounding commutes."""

_MAY_ACCEPT = _MOVES | {
    *ops_with(Trait.CONTRACTION),
    "convert_element_type",
    "reduce_sum",
}
"""Ops that may read bfloat16 instead of float32; all others keep their dtypes."""

_INDICES = {"dynamic_slice": 1, "dynamic_update_slice": 2, "gather": 1}
"""For kinds of op with indices, the number of the first operand that is an index."""


def propagate_bfloat16(compilation: Compilation) -> Compilation:
    """The compilation, with layouts that store values as bfloat16 where that is exact."""
    values = bfloat16_values(compilation.program)
    return replace(compilation, layouts=compilation.layouts.changed(bfloat16=values))


def bfloat16_values(program: Program) -> frozenset[Value]:
    """The float32 values of a program and its bodies that are stored as bfloat16."""
    search = _Search()
    search.visit(program, [False] * len(program.outputs))
    return frozenset(search.bfloat16)


class _Readers:
    """Votes of ops on their float32 operands: accepted in bfloat16, or refused.

    Only the ops visited so far have voted.
    """

    def __init__(self) -> None:
        self.accepted: set[Atom] = set()
        self.refused: set[Atom] = set()

    def note(self, atoms: Sequence[Atom], accepts: Sequence[bool]) -> None:
        """Record for each operand of an op whether the op accepts it as bfloat16."""
        for atom, accepted in zip(atoms, accepts, strict=True):
            (self.accepted if accepted else self.refused).add(atom)

    def accept(self, value: Atom) -> bool:
        """Whether a value is float32, has readers, and all of them accept bfloat16."""
        is_accepted = value in self.accepted and value not in self.refused
        return is_accepted and value.dtype == "float32"


class _Search:
    """The search for bfloat16 values, backward from the end of a program.

    In that order all readers of a value are visited before the op that produces it.
    """

    def __init__(self) -> None:
        self.bfloat16: set[Value] = set()

    def visit(self, program: Program, outputs: Sequence[bool]) -> list[bool]:
        """Mark a program's values that can be bfloat16, and return which inputs can be.

        outputs: for each output of the program, whether it can be bfloat16.
        """
        readers = _Readers()
        producers: dict[Atom, Op] = {r: op for op in program.ops for r in op.results}
        if self.bfloat16:
            self.bfloat16.difference_update(producers)  # of an earlier visit
        readers.note(program.outputs, outputs)
        voting = [op for op in program.ops if op.kind in _MAY_ACCEPT or op.bodies]
        others = [
            op.operands
            for op in program.ops
            if op.kind not in _MAY_ACCEPT and not op.bodies
        ]
        readers.refused.update(*others)
        for op in reversed(voting):
            may_be = [readers.accept(r) for r in op.results]
            # True of most ops.
            if op.kind in _MOVES and False in may_be:
                readers.refused.update(op.operands)
                continue
            if op.bodies:
                accepted = self._region(op, may_be)
            else:
                accepted = [
                    _accepts(op, position, may_be) or _sums(op, producers)
                    for position in range(len(op.operands))
                ]
            readers.note(op.operands, accepted)
        # Values of regions are marked apart.
        for op in [producers[v] for v in readers.accepted if v in producers]:
            if not op.bodies and not op.has_effect and readers.accept(op.results[0]):
                self.bfloat16.add(op.results[0])
        return [readers.accept(v) for v in program.inputs]

    def _region(self, op: Op, may_be: list[bool]) -> list[bool]:
        """Whether each operand of an op with bodies can be bfloat16; also marks the bodies.

        A value that a loop carries must be bfloat16 as operand, in the body and as
        result. If the body needs it in float32, the value stays float32, and the body
        is visited again.
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
        for result, is_bfloat16 in zip(op.results, results, strict=True):
            self._mark(result, is_bfloat16)
        accepted = [False] * len(op.operands)
        for wire in op.wires:
            if wire.operand is not None:
                kept = wire.result is None or wire.is_stacked or results[wire.result]
                inside = [inputs[body][i] for body, i in wire.inputs]
                accepted[wire.operand] = bool(inside) and kept and all(inside)
            for body, i in wire.inputs:
                is_bfloat16 = wire.operand is not None and accepted[wire.operand]
                self._mark(op.bodies[body].inputs[i], is_bfloat16)
        return accepted

    def _outputs(self, op: Op, number: int, results: list[bool]) -> list[bool]:
        """Whether each output of one body can be bfloat16.

        results: whether each result of the op can be.
        """
        outputs = [False] * len(op.bodies[number].outputs)
        for wire in op.wires:
            for body, position in wire.outputs:
                if body == number and wire.result is not None:
                    outputs[position] = results[wire.result]
        return outputs

    def _mark(self, value: Value, is_bfloat16: bool) -> None:
        (self.bfloat16.add if is_bfloat16 else self.bfloat16.discard)(value)


def _accepts(op: Op, position: int, may_be: list[bool]) -> bool:
    """Whether an op may read the operand at a position as bfloat16 instead of float32.

    may_be: for each result of the op, whether it can be bfloat16.
    """
    if has_trait(op.kind, Trait.CONTRACTION):
        return _is_own(op.params.get("precision"))
    if op.kind == "convert_element_type":
        return op.results[0].dtype == "bfloat16" or may_be[0]
    if op.kind not in _MOVES:
        return False
    if op.kind == "select_n":
        return position > 0
    return position < _INDICES.get(op.kind, len(op.operands))


def _sums(op: Op, producers: Mapping[Atom, Op]) -> bool:
    """Whether an op is a sum that is fused into the op that computes its operand.

    It then adds the float32 elements before they are rounded.
    """
    producer = producers.get(op.operands[0]) if op.kind == "reduce_sum" else None
    if producer is None:
        return False
    return kind_of(producer) in (FusionKind.LOOP, FusionKind.PRODUCT)


@cache
def _is_own(precision: object) -> bool:
    """Whether a product requires no more than the matrix unit's own precision."""
    sides = precision if isinstance(precision, tuple) else (precision,)
    return all(p is None or str(p).upper().endswith("DEFAULT") for p in sides)
