"""All-reduce reassociation: an all-reduce of a sum instead of a sum of all-reduces.

XLA: `AllReduceReassociate`. Two all-reduces over the same devices whose results are
added become one all-reduce of the sum, even if the program rounds the results in
between and converts them back: such conversions are removed first.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from meshwright.predict.compilers.model.compilation import Origins
from meshwright.program.ir import Atom, Op, Program, Value
from meshwright.program.ops import Trait, has_trait

Chain = tuple[Op, ...]
"""An all-reduce, and the conversions of its result, in order."""


def reassociate(program: Program, origins: Origins) -> Program:
    """The program with one all-reduce of a sum in place of each sum of two all-reduces."""
    while pairs := dict(_pairs(program)):
        dropped = {op for pair in pairs.values() for chain in pair for op in chain}
        ops: list[Op] = []
        for op in program.ops:
            if op in pairs:
                ops += _joined(op, *pairs[op], origins)
            elif op not in dropped:
                ops.append(op)
        program = replace(program, ops=tuple(ops))
    ops = [origins.with_bodies(op, reassociate) for op in program.ops]
    return program if tuple(ops) == program.ops else replace(program, ops=tuple(ops))


def _joined(adds: Op, left: Chain, right: Chain, origins: Origins) -> list[Op]:
    """The ops that replace a sum of two all-reduces: an addition, then one all-reduce."""
    own = Value(adds.results[0].shape, adds.results[0].dtype)
    addends = (left[0].operands[0], right[0].operands[0])
    return [
        origins.replace(adds, operands=addends, results=(own,)),
        origins.replace(left[0], operands=(own,), results=adds.results),
    ]


def _pairs(program: Program) -> Iterator[tuple[Op, tuple[Chain, Chain]]]:
    """Additions that can be merged, each with the two all-reduces whose results it adds.

    Each all-reduce comes as a `Chain`, with the conversions after it. Nothing else may read
    a value of a chain, and the conversions must restore the all-reduce's dtype.
    """
    chains: dict[Atom, Chain] = {}
    added: list[tuple[Op, tuple[Chain, Chain]]] = []
    for op in program.ops:
        if op.kind == "all_reduce" and op.params["monoid"] == "sum":
            chains[op.results[0]] = (op,)
        elif op.kind == "convert_element_type" and op.operands[0] in chains:
            chains[op.results[0]] = (*chains[op.operands[0]], op)
        elif chains and has_trait(op.kind, Trait.ADDS):
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
    """Whether two all-reduces over the same devices can become one.

    They do if shapes and dtypes agree, and each chain ends in its all-reduce's dtype.
    """
    types = {(op.results[0].shape, op.results[0].dtype) for op in (left[0], right[0])}
    ends = {(op.results[0].shape, op.results[0].dtype) for op in (left[-1], right[-1])}
    alike = left[0].params["axes"] == right[0].params["axes"]
    return alike and left[0] is not right[0] and len(types) == 1 and types == ends
