"""Predicted seconds of each op of a program on one chip.

The time of a fusion is divided among its ops.
"""

from __future__ import annotations

from meshwright.machine import Machine
from meshwright.planner.prices.op_prices import OpPrices
from meshwright.planner.prices.uniform_partition import price_ops
from meshwright.predict.roofline.kernel_time import (
    KernelTraffic,
    kernel_time,
    matrix_s,
    vector_flops,
)
from meshwright.program.analysis.executions import num_iterations
from meshwright.program.ir import Op, Program
from meshwright.program.ops import Trait, has_trait, work_of
from meshwright.program.rules.pallas_work import kernel_of


class OpTimes:
    """Predicted seconds of ops on one chip of a machine.

    The seconds of a loop include all its iterations.
    """

    def __init__(self, program: Program, machine: Machine) -> None:
        self.chip = machine.chip
        self.prices: OpPrices = price_ops(program, machine, 1)

    def seconds(self, op: Op) -> float:
        """Seconds of one execution of an op.

        For a `cond` (branch), they are the seconds of its longest body.
        """
        if op.bodies:
            inner = [sum(map(self.seconds, body.ops)) for body in op.bodies]
            if op.kind == "cond":
                return max(inner)
            return sum(inner) * num_iterations(op)
        if has_trait(op.kind, Trait.ALIASES_OPERAND):
            return 0.0
        if kernel_of(op) is not None:
            return kernel_time(op, work_of(op), KernelTraffic(0), self.chip).seconds
        prices = self.prices
        flops = vector_flops(op, work_of(op), self.chip)
        accesses = prices.accesses.get(op, {}).values()
        return (
            prices.launch_s.get(op, 0.0)
            + prices.vector_s.get(op, 0.0) * flops
            + prices.matrix.get(op, 0.0) * matrix_s(op, self.chip)
            + sum(price.seconds for price in accesses)
        )
