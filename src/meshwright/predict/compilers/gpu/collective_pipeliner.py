"""Collective pipeliner: peel off the first iteration of loops that reduce-scatter.

XLA: `CollectivePipeliner`, forward, for reduce-scatters. If a loop stacks the results
of a reduce-scatter, such as the gradients of each layer, one iteration starts the
collective and the next one ends it. For this the first iteration runs before the loop.
It reads its slices of stacked operands from the arrays that were passed to the loop,
which stay live until then.
"""

from collections.abc import Mapping
from dataclasses import replace

from meshwright.predict.compilers.model.compilation import Origins
from meshwright.program.ir import Atom, Op, Program, Value, Wire
from meshwright.program.ops import Trait, has_trait
from meshwright.program.rewrite.recomputation import copied


def pipeline_collectives(program: Program, origins: Origins) -> Program:
    """Peel the first iteration off each loop that stacks results of reduce-scatters."""
    ops: list[Op] = []
    for op in program.ops:
        loop = origins.with_bodies(op, pipeline_collectives)
        ops += _peeled(loop, origins) if _is_pipelined(loop) else [loop]
    return program if tuple(ops) == program.ops else replace(program, ops=tuple(ops))


def _is_pipelined(op: Op) -> bool:
    """Whether an op is a scan of at least 2 iterations that stacks reduce-scatters."""
    length = op.params.get("length")
    if op.kind != "scan" or not isinstance(length, int) or length < 2:
        return False
    (body,) = op.bodies
    makers = {result: each for each in body.ops for result in each.results}
    return any(
        _is_scattered(body.outputs[i], makers)
        for wire in op.wires
        if wire.is_stacked
        for _, i in wire.outputs
    )


def _is_scattered(atom: Atom, makers: Mapping[Value, Op]) -> bool:
    """Whether a value is the result of a reduce-scatter, perhaps converted or reshaped.

    makers: the op that computes each value.
    """
    while isinstance(atom, Value) and atom in makers:
        op = makers[atom]
        if op.kind == "reduce_scatter":
            return True
        is_moved = any(has_trait(op.kind, trait) for trait in _FORMATS)
        if not is_moved and op.kind != "convert_element_type":
            return False
        atom = op.operands[0]
    return False


_FORMATS = (Trait.ALIASES_OPERAND, Trait.MOVES)


def _peeled(loop: Op, origins: Origins) -> list[Op]:
    """Split a loop into its first iteration and the rest.

    Returns the slices of stacked operands that the first iteration reads, a loop of
    that one iteration, and the loop of the other iterations. The second loop also takes
    the stacked results of the first as operands, so that they stay live.
    """
    (body,), length = loop.bodies, loop.params["length"]
    assert isinstance(length, int), f"a scan of length {length!r}"
    first_body = copied(body)
    for made, old in zip(first_body.walk(), body.walk(), strict=True):
        origins[made] = origins.get(old, old)
    operands, rest_operands = list(loop.operands), list(loop.operands)
    results: list[Value] = [Value(v.shape, v.dtype) for v in loop.results]
    slices: list[Op] = []
    for wire in loop.wires:
        if wire.is_stacked and wire.operand is not None:
            stack = loop.operands[wire.operand]
            part = Value((1, *stack.shape[1:]), stack.dtype)
            slices.append(Op("slice", (stack,), (part,), source=loop.source))
            operands[wire.operand] = part
        elif wire.is_stacked and wire.result is not None:
            stack = loop.results[wire.result]
            results[wire.result] = Value((1, *stack.shape[1:]), stack.dtype)
        elif wire.result is not None and wire.operand is not None:
            rest_operands[wire.operand] = results[wire.result]
    first = origins.replace(
        loop,
        operands=tuple(operands),
        results=tuple(results),
        params={**loop.params, "length": 1},
        bodies=(first_body,),
    )
    kept = [
        results[w.result] for w in loop.wires if w.is_stacked and w.result is not None
    ]
    rest = origins.replace(
        loop,
        operands=(*rest_operands, *kept),
        params={**loop.params, "length": length - 1},
        wires=(*loop.wires, *(Wire(len(rest_operands) + i) for i in range(len(kept)))),
    )
    return [*slices, first, rest]
