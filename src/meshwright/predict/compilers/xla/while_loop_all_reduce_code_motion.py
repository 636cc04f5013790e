"""While-loop all-reduce code motion: all-reduces of accumulators leave their loops.

XLA: `WhileLoopAllReduceCodeMotion`. If every iteration of a loop all-reduces a value and
adds it to an accumulator that nothing reads before the loop ends, the loop accumulates
the device's own addends instead, and one all-reduce follows it. Conversions between
all-reduce and addition stay in the loop. The accumulator is then as large as the operand
of the collective, which matters for a reduce-scatter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from meshwright.predict.compilers.hlo.compilation import Compilation
from meshwright.predict.compilers.hlo.fusion import is_zeros
from meshwright.program.analysis.accumulators import Accumulator, accumulators
from meshwright.program.ir import Atom, Literal, Op, Program, Value


def move_all_reduces_out_of_loops(compilation: Compilation) -> Compilation:
    """The compilation with the all-reduces of accumulators behind their loops."""
    program, origins = code_motion(compilation.program)
    return compilation.with_program(program, origins)


def code_motion(program: Program) -> tuple[Program, Mapping[Op, Op]]:
    """The program with its all-reduces moved; itself if no loop has an accumulator.

    The second result is the origin of each op that stands for another one.
    """
    motion = _CodeMotion()
    return motion.program(program), motion.origins


class _CodeMotion:
    def __init__(self) -> None:
        self.origins: dict[Op, Op] = {}

    def program(self, program: Program) -> Program:
        """The program with its loops rewritten, those of bodies included."""
        if not any(op.bodies for op in program.ops):
            return program
        producers = {result: op for op in program.ops for result in op.results}
        ops = tuple(new for op in program.ops for new in self._ops(op, producers))
        return program if ops == program.ops else replace(program, ops=ops)

    def _ops(self, op: Op, producers: Mapping[Value, Op]) -> Iterator[Op]:
        """The ops that replace one op."""
        bodies = tuple(map(self.program, op.bodies))
        loop = op if bodies == op.bodies else replace(op, bodies=bodies)
        after_loop: list[Op] = []
        for total in [t for t in accumulators(loop) if _is_moved(t, loop)]:
            zeros, loop, after = self._split(loop, total, producers)
            yield zeros
            after_loop += after
        if loop is not op:
            self.origins[loop] = op
        yield loop
        yield from after_loop

    def _split(
        self, loop: Op, total: Accumulator, producers: Mapping[Value, Op]
    ) -> tuple[Op, Op, list[Op]]:
        """The accumulator's initial zeros, the loop, and the ops behind the loop."""
        wire, reduction = total.wire, total.reduction
        assert wire.operand is not None
        assert wire.result is not None
        shape, dtype = reduction.operands[0].shape, total.adds.results[0].dtype
        zeros, own = Value(shape, dtype), Value(shape, dtype)
        initial = Op(
            "broadcast_in_dim", (Literal(0, dtype),), (zeros,),
            {"shape": shape, "dims": ()}, source=reduction.source,
        )  # fmt: skip
        start, result = loop.operands[wire.operand], loop.results[wire.result]
        changed = replace(
            loop,
            operands=_with(loop.operands, wire.operand, zeros),
            results=_with(loop.results, wire.result, own),
            bodies=(self._accumulating_own(loop.bodies[0], total, shape),),
        )
        if is_zeros(producers, start):
            return initial, changed, [self._copy(reduction, (own,), (result,))]
        summed = Value(result.shape, dtype)
        after = [
            self._copy(reduction, (own,), (summed,)),
            self._copy(total.adds, (start, summed), (result,)),
        ]
        return initial, changed, after

    def _accumulating_own(
        self, body: Program, total: Accumulator, shape: tuple[int, ...]
    ) -> Program:
        """The body without the collective: it accumulates the device's own addends."""
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
            changed[op] = self._copy(op, operands, (made,))
        ops = (changed.get(op, op) for op in body.ops if op is not total.reduction)
        return replace(
            body,
            inputs=_with(body.inputs, i, carried),
            ops=tuple(ops),
            outputs=_with(body.outputs, o, changed[total.adds].results[0]),
        )

    def _copy(
        self, op: Op, operands: tuple[Atom, ...], results: tuple[Value, ...]
    ) -> Op:
        """The op on other values."""
        made = replace(op, operands=operands, results=results)
        self.origins[made] = self.origins.get(op, op)
        return made


def _is_moved(total: Accumulator, loop: Op) -> bool:
    """Whether the compiler moves a sum out of a loop.

    A converted reduce-scatter only if it could itself be of that dtype, and does not
    read what an inner loop makes.
    """
    if not total.between or total.reduction.kind == "all_reduce":
        return True
    regions = (op for op in loop.bodies[0].ops if op.bodies)
    made = {result for op in regions for result in op.results}
    return not total.is_rounded and total.reduction.operands[0] not in made


def _with[T](values: tuple[T, ...], position: int, value: T) -> tuple[T, ...]:
    return (*values[:position], value, *values[position + 1 :])
