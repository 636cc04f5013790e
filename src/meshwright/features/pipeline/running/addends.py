"""Rewrites loop bodies so that sums over microbatches are left to the caller.

Such a body returns what one microbatch adds to a sum (the addend), instead of the sum.
"""

from collections.abc import Collection
from dataclasses import replace

from meshwright.program.ir import Atom, Op, Program


def without_sums(body: Program, places: Collection[int] | None = None) -> Program:
    """A body whose outputs are the addends of one microbatch, not sums over them all.

    places: positions of the outputs whose all-reduce is left out; `None` for all.
    """
    read = {atom for op in body.ops for atom in op.operands}
    outputs = enumerate(body.outputs)
    summed = {a for i, a in outputs if (places is None or i in places)} - read
    addends: dict[Atom, Atom] = {}
    ops: list[Op] = []
    for op in body.ops:
        is_sum = op.kind == "all_reduce" and op.params["monoid"] == "sum"
        if is_sum and op.results[0] in summed:
            addends[op.results[0]] = op.operands[0]
        elif op.kind == "remat":
            inner = [
                w.outputs[0][1]
                for w in op.wires
                if w.result is not None and op.results[w.result] in summed
            ]
            ops.append(replace(op, bodies=(without_sums(op.bodies[0], inner),)))
        else:
            ops.append(op)
    outputs = tuple(addends.get(a, a) for a in body.outputs)
    return replace(body, ops=tuple(ops), outputs=outputs)
