"""Producers that a fusion computes itself, and the stored values that they read."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from meshwright.program.ir import Op, Value
from meshwright.program.ops import OpWork

SLICE_OF_DEVICE = "all_slice"
"""An op that slices the device's own part out of a value that every device has whole."""


class FusedProducers:
    """Ops that a consumer computes itself, with their work.

    ops: each after those whose results it reads. reads: stored values that they read,
    in order.
    """

    __slots__ = ("ops", "reads")

    def __init__(self, ops: dict[Op, OpWork], reads: dict[Value, None]) -> None:
        self.ops = ops
        self.reads = reads

    def with_op(self, op: Op, work: OpWork) -> FusedProducers:
        """These producers and one more op, which reads what they make."""
        return FusedProducers({**self.ops, op: work}, self.reads)

    def shares(
        self, root: Op, operands: Mapping[Op, Sequence[Value]]
    ) -> dict[Value, float]:
        """The share of each value that is needed; empty if all are needed whole.

        root: the op that the producers are fused into. operands: of each op, as stored.
        """
        shares: dict[Value, float] = {}
        if root.kind != SLICE_OF_DEVICE and SLICE_OF_DEVICE not in [
            op.kind for op in self.ops
        ]:
            return shares
        for op in (root, *reversed(self.ops)):
            share = 1.0 if op is root else max(shares.get(r, 0.0) for r in op.results)
            made = math.prod(op.results[0].shape) if op.results else 0
            for value in operands[op]:
                size = math.prod(value.shape)
                if op.kind == SLICE_OF_DEVICE:
                    needed = share * made / size if size else 1.0
                else:  # a smaller operand is broadcast: each element is needed often
                    needed = min(1.0, share * max(1.0, made / size)) if size else 1.0
                known = shares.get(value, 0.0)
                # Equal shares are taken for the same part, others for parts apart.
                shares[value] = known if known == needed else min(1.0, known + needed)
        return shares

    def work_with(self, work: OpWork, shares: Mapping[Value, float]) -> OpWork:
        """The work of all producers, each counted once, plus `work`."""
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
