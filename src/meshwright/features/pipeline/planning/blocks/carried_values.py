"""Values that a loop over layers carries from one iteration to the next.

If a pipeline is cut between two layers of the loop, these values are sent to the next
stage. The ops that compute them in the backward pass are input gradients: earlier
layers wait for them.
"""

from __future__ import annotations

from meshwright.program.ir import Atom, Op, Program, Value
from meshwright.program.ops import Trait, has_trait


def carried_results(op: Op) -> tuple[Value, ...]:
    """The results of a loop that its iterations carry, as the last one leaves them."""
    return tuple(
        op.results[wire.result]
        for wire in op.wires
        if wire.inputs and wire.outputs and not wire.is_stacked
        if wire.result is not None
    )


def _carries(op: Op) -> list[tuple[Value, Atom]]:
    """The values that each iteration of a loop is given, and what it hands on for them."""
    body = op.bodies[0]
    return [
        (body.inputs[wire.inputs[0][1]], body.outputs[wire.outputs[0][1]])
        for wire in op.wires
        if wire.inputs and wire.outputs and not wire.is_stacked
    ]


def carried_outputs(op: Op) -> set[Value]:
    """Values that an iteration of a scan computes and the next iteration needs.

    Accumulators, to which the next iteration only adds, are left out.
    """
    if op.kind != "scan":
        return set()
    needed: set[Value] = set()
    for before, after in _carries(op):
        readers = [each for each in op.bodies[0].ops if before in each.operands]
        adds = len(readers) == 1 and has_trait(readers[0].kind, Trait.ADDS)
        adds = adds and after in readers[0].results
        if isinstance(after, Value) and not adds:
            needed.add(after)
    return needed


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
