"""While-loop all-reduce code motion: all-reduces of accumulators leave their loops.

XLA: `WhileLoopAllReduceCodeMotion`. If every iteration of a loop all-reduces a value and
adds it to an accumulator that nothing reads before the loop ends, the loop accumulates
the device's own addends instead, and one all-reduce follows it. Conversions between
all-reduce and addition stay in the loop. The accumulator is then as large as the operand
of the collective, which matters for a reduce-scatter.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from meshwright.predict.compilers.model.compilation import Origins
from meshwright.predict.compilers.model.fusion import is_zeros
from meshwright.program.analysis.accumulators import Accumulator, accumulators
from meshwright.program.ir import Atom, Literal, Op, Program, Value


def code_motion(program: Program, origins: Origins) -> Program:
    """The program with all-reduces of accumulators moved behind their loops."""
    if not any(op.bodies for op in program.ops):
        return program
    producers: dict[Atom, Op] = {r: op for op in program.ops for r in op.results}
    ops = tuple(new for op in program.ops for new in _ops(op, producers, origins))
    return program if ops == program.ops else replace(program, ops=ops)


def _ops(op: Op, producers: Mapping[Atom, Op], origins: Origins) -> Iterator[Op]:
    """The ops that replace one op."""
    loop = origins.with_bodies(op, code_motion)
    after: list[Op] = []
    for total in [t for t in accumulators(loop) if _is_moved(t, loop)]:
        wire, reduction = total.wire, total.reduction
        assert wire.operand is not None
        assert wire.result is not None
        shape, dtype = reduction.operands[0].shape, total.adds.results[0].dtype
        zeros, own = Value(shape, dtype), Value(shape, dtype)
        yield Op(
            "broadcast_in_dim", (Literal(0, dtype),), (zeros,),
            {"shape": shape, "dims": ()}, source=reduction.source,
        )  # fmt: skip
        start, result = loop.operands[wire.operand], loop.results[wire.result]
        loop = origins.replace(
            loop,
            operands=_with(loop.operands, wire.operand, zeros),
            results=_with(loop.results, wire.result, own),
            bodies=(_accumulating_own(loop.bodies[0], total, shape, origins),),
        )
        adds_to_zeros = is_zeros(producers, start)
        summed = result if adds_to_zeros else Value(result.shape, dtype)
        after.append(origins.replace(reduction, operands=(own,), results=(summed,)))
        if not adds_to_zeros:
            addends = (start, summed)
            after.append(
                origins.replace(total.adds, operands=addends, results=(result,))
            )
    yield loop
    yield from after


def _accumulating_own(
    body: Program, total: Accumulator, shape: tuple[int, ...], origins: Origins
) -> Program:
    """The loop's body without the collective: it adds up the device's own addends."""
    (_, i), (_, o) = total.wire.inputs[0], total.wire.outputs[0]
    carried = Value(shape, body.inputs[i].dtype)
    renamed: dict[Atom, Atom] = {
        body.inputs[i]: carried,
        total.reduction.results[0]: total.reduction.operands[0],
    }
    changed: dict[Op, Op] = {}
    for op in (*total.between, total.adds):
        made = Value(shape, op.results[0].dtype)
        renamed[op.results[0]] = made
        operands = tuple(renamed.get(v, v) for v in op.operands)
        changed[op] = origins.replace(op, operands=operands, results=(made,))
    ops = (changed.get(op, op) for op in body.ops if op is not total.reduction)
    return replace(
        body,
        inputs=_with(body.inputs, i, carried),
        ops=tuple(ops),
        outputs=_with(body.outputs, o, changed[total.adds].results[0]),
    )


def _is_moved(total: Accumulator, loop: Op) -> bool:
    """Whether the compiler moves the reduction of an accumulator out of its loop.

    It moves every all-reduce, and every reduce-scatter whose result is not converted. A
    converted reduce-scatter is moved only if its result is not converted back to its own
    dtype, and if it does not read the result of an inner loop.
    """
    if not total.between or total.reduction.kind == "all_reduce":
        return True
    regions = (op for op in loop.bodies[0].ops if op.bodies)
    made = {result for op in regions for result in op.results}
    return not total.is_rounded and total.reduction.operands[0] not in made


def _with[T](values: tuple[T, ...], position: int, value: T) -> tuple[T, ...]:
    return (*values[:position], value, *values[position + 1 :])
