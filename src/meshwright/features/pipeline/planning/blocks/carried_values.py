"""Values that a loop over layers carries from one iteration to the next.

If a pipeline is cut between two layers of the loop, these values are sent to the next
stage. The ops that compute them in the backward pass are input gradients: earlier
layers wait for them.
"""

from __future__ import annotations

from meshwright.program.ir import Op, Program, Value, num_bytes
from meshwright.program.ops import Trait, has_trait


def carried_bytes(op: Op) -> float:
    """Bytes of the values that a loop carries from one iteration to the next."""
    body = op.bodies[0]
    return float(
        sum(
            num_bytes(body.inputs[w.inputs[0][1]])
            for w in op.wires
            if w.inputs and w.outputs and not w.is_stacked
        )
    )


def carried_outputs(op: Op) -> set[Value]:
    """Values that an iteration of a scan computes and the next iteration needs.

    Accumulators, to which the next iteration only adds, are left out.
    """
    if op.kind != "scan":
        return set()
    body = op.bodies[0]
    found: set[Value] = set()
    for wire in op.wires:
        if not wire.inputs or not wire.outputs or wire.is_stacked:
            continue
        given, output = body.inputs[wire.inputs[0][1]], body.outputs[wire.outputs[0][1]]
        readers = [each for each in body.ops if given in each.operands]
        adds = len(readers) == 1 and has_trait(readers[0].kind, Trait.ADDS)
        adds = adds and output in readers[0].results
        if isinstance(output, Value) and not adds:
            found.add(output)
    return found


def needed_ops(program: Program, wanted: set[Value]) -> set[Op]:
    """The ops that compute some values, directly or not, also in nested programs."""
    needed, found = set(wanted), set[Op]()
    for op in reversed(program.ops):
        results = {i for i, r in enumerate(op.results) if r in needed}
        if not results:
            continue
        found.add(op)
        needed.update(v for v in op.operands if isinstance(v, Value))
        for number, body in enumerate(op.bodies):
            ends = [
                body.outputs[position]
                for wire in op.wires
                if wire.result in results
                for which, position in wire.outputs
                if which == number
            ]
            found |= needed_ops(body, {v for v in ends if isinstance(v, Value)})
    return found
