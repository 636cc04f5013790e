"""Fully sharded data parallelism: batch, parameters and optimizer state on one axis."""

from __future__ import annotations

from dataclasses import dataclass

from meshwright.partitioner.structure.workspace import Workspace
from meshwright.partitioner.tactics.data_parallel import data_parallel
from meshwright.partitioner.tactics.tactic import TacticKind
from meshwright.partitioner.tactics.zero import zero


@dataclass(frozen=True, slots=True)
class FullySharded:
    """`data_parallel(axis)`, unless the axis is in use already, then `zero(3, axis)`."""

    axis: str
    kind = TacticKind.STRATEGY
    rewrite = None

    @property
    def axes(self) -> tuple[str, ...]:
        return (self.axis,)

    def apply(self, work: Workspace) -> None:
        """Cut the batch, then parameters and optimizer state."""
        work.mesh.require(self.axis)
        if not any(work.is_cut(node, self.axis) for node in work.graph.input_nodes):
            data_parallel(self.axis).apply(work)
        zero(3, self.axis).apply(work)

    def __str__(self) -> str:
        return f"fsdp({self.axis!r})"


def fsdp(axis: str) -> FullySharded:
    """Cut batch, parameters and optimizer state along one axis: `fsdp("data")`."""
    return FullySharded(axis)
