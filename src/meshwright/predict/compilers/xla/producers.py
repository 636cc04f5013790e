"""What an op computes on the fly, and what it reads for that."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from meshwright.program.ir import Op, Value
from meshwright.program.ops import OpWork

PART = "all_slice"
"""What takes a device's own part of a value that is there whole."""


class Fed:
    """Ops computed on the fly with their work, and the stored values that they read.

    reads: in order. ops: each behind those whose results it reads.
    """

    __slots__ = ("ops", "reads")

    def __init__(self, ops: dict[Op, OpWork], reads: dict[Value, None]) -> None:
        self.ops = ops
        self.reads = reads

    def with_op(self, op: Op, work: OpWork) -> Fed:
        """The same and one more op, which reads what those before it make."""
        return Fed({**self.ops, op: work}, self.reads)

    def shares(
        self, last: Op, operands: Mapping[Op, Sequence[Value]]
    ) -> dict[Value, float]:
        """Of each value the share that is needed here, where some is not needed whole.

        last: the op that all this is for. operands: of each op, as stored.
        """
        shares: dict[Value, float] = {}
        if last.kind != PART and PART not in [op.kind for op in self.ops]:
            return shares
        for op in (last, *reversed(self.ops)):
            share = 1.0 if op is last else max(shares.get(r, 0.0) for r in op.results)
            made = math.prod(op.results[0].shape) if op.results else 0
            for value in operands[op]:
                size = math.prod(value.shape)
                if op.kind == PART:
                    needed = share * made / size if size else 1.0
                else:  # a smaller operand is repeated, and needed again and again
                    needed = min(1.0, share * max(1.0, made / size)) if size else 1.0
                known = shares.get(value, 0.0)
                # Equal shares are taken for the same part, others for parts apart.
                shares[value] = known if known == needed else min(1.0, known + needed)
        return shares

    def work_with(self, work: OpWork, shares: Mapping[Value, float]) -> OpWork:
        """That of all the ops, each counted once, and more."""
        if not self.ops:
            return work
        works = self.ops.values()
        if shares:
            works = [
                each.scaled(max(shares[r] for r in op.results if r in shares))
                for op, each in self.ops.items()
            ]
        flops, transcendentals = work.flops, work.transcendentals
        for each in works:
            flops += each.flops
            transcendentals += each.transcendentals
        return OpWork(flops, transcendentals)
