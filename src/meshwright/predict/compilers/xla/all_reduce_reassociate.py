"""All-reduce reassociation: an all-reduce of a sum in the place of a sum of all-reduces.

XLA: `AllReduceReassociate`. Two all-reduces over the same devices whose results are added
become one all-reduce of the sum, also if the program rounds the results in between and
converts them back: such conversions are removed before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

from meshwright.predict.compilers.hlo.compilation import Compilation
from meshwright.program.ir import Atom, Op, Program, Value
from meshwright.program.ops import Trait, has_trait


def reassociate_all_reduces(compilation: Compilation) -> Compilation:
    """The compilation with one all-reduce for those whose results are added."""
    program, origins = reassociate(compilation.program)
    return compilation.with_program(program, origins)


def reassociate(program: Program) -> tuple[Program, Mapping[Op, Op]]:
    """The program so rewritten; itself if it adds no two all-reduces.

    The second result is the origin of each op that stands for another one.
    """
    rewrite = _Reassociation()
    return rewrite.program(program), rewrite.origins


Chain = tuple[Op, ...]
"""An all-reduce, and the conversions of its result in order."""


class _Reassociation:
    def __init__(self) -> None:
        self.origins: dict[Op, Op] = {}

    def program(self, program: Program) -> Program:
        """The program so rewritten, its bodies included."""
        while pairs := dict(_pairs(program)):
            dropped = {op for pair in pairs.values() for chain in pair for op in chain}
            ops: list[Op] = []
            for op in program.ops:
                if op in pairs:
                    ops += self._joined(op, *pairs[op])
                elif op not in dropped:
                    ops.append(op)
            program = replace(program, ops=tuple(ops))
        return self._with_bodies(program)

    def _with_bodies(self, program: Program) -> Program:
        ops: list[Op] = []
        for op in program.ops:
            bodies = tuple(map(self.program, op.bodies))
            if bodies == op.bodies:
                ops.append(op)
                continue
            ops.append(replace(op, bodies=bodies))
            self.origins[ops[-1]] = self.origins.get(op, op)
        is_same = tuple(ops) == program.ops
        return program if is_same else replace(program, ops=tuple(ops))

    def _joined(self, adds: Op, left: Chain, right: Chain) -> list[Op]:
        """The addition of both operands, and one all-reduce of the sum."""
        own = Value(adds.results[0].shape, adds.results[0].dtype)
        addends = (left[0].operands[0], right[0].operands[0])
        return [
            self._copy(adds, addends, (own,)),
            self._copy(left[0], (own,), adds.results),
        ]

    def _copy(
        self, op: Op, operands: tuple[Atom, ...], results: tuple[Value, ...]
    ) -> Op:
        """The op on other values."""
        made = replace(op, operands=operands, results=results)
        self.origins[made] = self.origins.get(op, op)
        return made


def _pairs(program: Program) -> Iterator[tuple[Op, tuple[Chain, Chain]]]:
    """Additions of two all-reduces over the same devices, with the chains of both.

    Nothing else reads a value of a chain, and its conversions undo each other.
    """
    chains: dict[Atom, Chain] = {}
    added: list[tuple[Op, tuple[Chain, Chain]]] = []
    for op in program.ops:
        if op.kind == "all_reduce" and op.params["monoid"] == "sum":
            chains[op.results[0]] = (op,)
        elif op.kind == "convert_element_type" and op.operands[0] in chains:
            chains[op.results[0]] = (*chains[op.operands[0]], op)
        elif has_trait(op.kind, Trait.ADDS) and chains:
            left, right = map(chains.get, op.operands)
            if left is not None and right is not None and _match(left, right):
                added.append((op, (left, right)))
    if not added:
        return
    reads = Counter(program.outputs)
    reads.update(v for op in program.ops for v in op.operands)
    for op, pair in added:
        if all(reads[each.results[0]] == 1 for chain in pair for each in chain):
            yield op, pair


def _match(left: Chain, right: Chain) -> bool:
    """Whether two sums are over the same devices, and end in the dtype they began with."""
    types = {(op.results[0].shape, op.results[0].dtype) for op in (left[0], right[0])}
    ends = {(op.results[0].shape, op.results[0].dtype) for op in (left[-1], right[-1])}
    alike = left[0].params["axes"] == right[0].params["axes"]
    return alike and left[0] is not right[0] and len(types) == 1 and types == ends
