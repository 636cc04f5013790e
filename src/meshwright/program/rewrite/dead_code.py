"""Dead code elimination (XLA: `HloDCE`), inside loops and branches too."""

from collections.abc import Collection
from dataclasses import replace

from meshwright.program.ir import Atom, Op, Program, Wire


def eliminate_dead_code(program: Program) -> Program:
    """The program without ops whose results cannot reach an output or an effect.

    Law: inputs and outputs stay as they are, and the result computes the same.
    """
    return _live_body(program, range(len(program.outputs)))


def _live_body(program: Program, kept_outputs: Collection[int]) -> Program:
    """The program with only the outputs at positions `kept_outputs`, and all inputs.

    Ops that these outputs and the effects do not need are removed.
    """
    outputs = tuple(a for i, a in enumerate(program.outputs) if i in kept_outputs)
    live: set[Atom] = set(outputs)
    ops: list[Op] = []
    for op in reversed(program.ops):
        if not (op.has_effect or any(r in live for r in op.results)):
            continue
        kept = _live_region(op, live) if op.bodies else op
        live.update(kept.operands)
        ops.append(kept)
    constants = {v: c for v, c in program.constants.items() if v in live}
    return Program(program.inputs, tuple(reversed(ops)), outputs, constants)


def _live_region(op: Op, live: Collection[Atom]) -> Op:
    """A loop or branch without the arrays that live results and bodies do not need.

    An array's path through the op is a wire (`ir.Wire`); wires that are not needed are
    removed.
    """
    wires = [w for w in op.wires if _is_root(op, w, live)]
    while True:
        bodies = tuple(
            _live_body(body, {i for w in wires for b, i in w.outputs if b == index})
            for index, body in enumerate(op.bodies)
        )
        used = [_used_inputs(body) for body in bodies]
        grown = [
            w for w in op.wires if w in wires or any(i in used[b] for b, i in w.inputs)
        ]
        if len(grown) == len(wires):
            break
        wires = grown
    return _rewire(op, bodies, wires)


def _is_root(op: Op, wire: Wire, live: Collection[Atom]) -> bool:
    """Whether a wire (`ir.Wire`) is needed whatever the bodies read.

    It is if it leads to a live result, or carries a condition or a branch index.
    """
    if wire.result is not None:
        return op.results[wire.result] in live
    return bool(wire.outputs) or not wire.inputs


def _used_inputs(body: Program) -> set[int]:
    read = set(body.outputs).union(*(op.operands for op in body.ops))
    return {i for i, v in enumerate(body.inputs) if v in read}


def _rewire(op: Op, bodies: tuple[Program, ...], wires: list[Wire]) -> Op:
    """The op with only the operands, results and body ends of `wires`, renumbered.

    bodies: bodies without dead outputs, but still with all inputs.
    """
    operands = sorted(w.operand for w in wires if w.operand is not None)
    results = sorted(w.result for w in wires if w.result is not None)
    every = range(len(bodies))
    inputs = [sorted({i for w in wires for b, i in w.inputs if b == k}) for k in every]
    outputs = [
        sorted({i for w in wires for b, i in w.outputs if b == k}) for k in every
    ]
    renumbered = tuple(
        Wire(
            None if w.operand is None else operands.index(w.operand),
            tuple((b, inputs[b].index(i)) for b, i in w.inputs),
            tuple((b, outputs[b].index(i)) for b, i in w.outputs),
            None if w.result is None else results.index(w.result),
            w.is_stacked,
        )
        for w in wires
    )
    trimmed = tuple(
        replace(body, inputs=tuple(body.inputs[i] for i in inputs[k]))
        for k, body in enumerate(bodies)
    )
    return replace(
        op,
        operands=tuple(op.operands[i] for i in operands),
        results=tuple(op.results[i] for i in results),
        bodies=trimmed,
        wires=renumbered,
    )
