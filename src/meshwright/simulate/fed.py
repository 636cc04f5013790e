"""What an op computes on the fly, and what it reads for that."""

from __future__ import annotations

from meshwright.ir import Op, Value
from meshwright.rules import Work


class Fed:
    """Ops computed on the fly with their work, and the stored values that they read.

    reads: in order. ops: each behind those whose results it reads.
    """

    __slots__ = ("ops", "reads")

    def __init__(self, ops: dict[Op, Work], reads: dict[Value, None]) -> None:
        self.ops = ops
        self.reads = reads

    def with_op(self, op: Op, work: Work) -> Fed:
        """The same and one more op, which reads what those before it make."""
        return Fed({**self.ops, op: work}, self.reads)

    def work_with(self, work: Work) -> Work:
        """That of all the ops, each counted once, and more."""
        works = self.ops.values()
        return Work(
            sum([each.flops for each in works], work.flops),
            sum([each.transcendentals for each in works], work.transcendentals),
        )
