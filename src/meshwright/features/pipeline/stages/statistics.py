"""Sums over the batch in the middle of a step, taken over each microbatch instead.

A batch norm needs the moments of the whole batch before the next layer can begin, so that
no microbatch gets ahead of another. Under gradient accumulation, and in pipelines (GPipe:
Huang et al., NeurIPS 2019, section 2.2; Alpa), moments are those of a microbatch. Here a
sum over the batch that later ops of the batch read becomes the sum over the microbatch,
times the number of microbatches: means are then means of the microbatch, and gradients
are those of such a step. What is read once, such as a running mean, stays over the batch.
A single microbatch has the whole batch, also where examples meet all others (the pairs of a
contrastive loss).
"""

from dataclasses import replace

from meshwright.partitioner.lower.time_crossings import is_crossing
from meshwright.partitioner.lower.time_stages import looped_ops
from meshwright.program.ir import Atom, Literal, Op, Program, Value
from meshwright.program.rewrite.dead_code import eliminate_dead_code
from meshwright.program.rewrite.recomputation import copied


def with_own_statistics(program: Program, axis: str, length: int) -> Program:
    """The program with sums over the batch in its middle taken over each microbatch.

    axis: the sequential axis of microbatches. length: number of microbatches. A program
        without such sums stays as it is.
    """
    return _Rewrite(program, axis, length).program()


class _Rewrite:
    """Rewrites a program so that sums over the batch become sums over one microbatch.

    own: for each value of the whole batch, the value of the microbatch in its place.
    """

    def __init__(self, program: Program, axis: str, length: int) -> None:
        self.source = program
        self.axis = axis
        self.length = length
        self.looped = looped_ops(program, axis)
        self.own: dict[Atom, Atom] = {}
        self.ops: list[Op] = []

    def program(self) -> Program:
        """The rewritten program."""
        read = self._read_by_microbatches()
        for op in self.source.ops:
            own = tuple(self.own.get(a, a) for a in op.operands)
            if is_crossing(op, self.axis):
                self.ops.append(replace(op, operands=own))
                if op.results[0] in read and self.length == 1:
                    self.own[op.results[0]] = own[0]
                elif op.results[0] in read and op.kind == "all_reduce":
                    self.own[op.results[0]] = self._sum(op, own[0])
            elif own == op.operands:
                self.ops.append(op)
            elif op in self.looped:
                self.ops.append(replace(op, operands=own))
            else:
                self.ops.append(op)
                results = tuple(Value(r.shape, r.dtype) for r in op.results)
                bodies = tuple(map(copied, op.bodies))
                copy = replace(op, operands=own, results=results, bodies=bodies)
                self.ops.append(copy)
                self.own.update(zip(op.results, results, strict=True))
        return eliminate_dead_code(replace(self.source, ops=tuple(self.ops)))

    def _read_by_microbatches(self) -> set[Atom]:
        """The values on which some op that runs per microbatch depends."""
        read: set[Atom] = set()
        for op in reversed(self.source.ops):
            if op in self.looped or not read.isdisjoint(op.results):
                read.update(op.operands)
        return read

    def _sum(self, op: Op, x: Atom) -> Atom:
        """The sum over a microbatch, scaled by the number of microbatches.

        Other reductions, such as a maximum, are those of the microbatch, not scaled.
        """
        if op.params["monoid"] != "sum" or x.dtype == "bool":
            return x
        result = Value(x.shape, x.dtype)
        times = Literal(self.length, x.dtype)
        self.ops.append(Op("mul", (x, times), (result,), source=op.source))
        return result
