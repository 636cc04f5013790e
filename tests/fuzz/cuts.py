"""A tactic that splits random factors of random ops, as a search may do."""

from __future__ import annotations

import random
from dataclasses import dataclass

from meshwright.partitioner.tactics import TacticKind, Workspace


@dataclass(frozen=True)
class Cuts:
    """Cut random factors of random nodes along one axis, each propagated."""

    seed: int
    count: int
    axis: str
    kind = TacticKind.STRATEGY
    rewrite = None

    @property
    def axes(self) -> tuple[str, ...]:
        return (self.axis,)

    def apply(self, work: Workspace) -> None:
        """Try `count` times; factors that cannot be split are left alone."""
        rng = random.Random(self.seed)
        nodes = [node for node in work.graph.nodes if node.sizes]
        for sub_axis in work.sub_axes[work.mesh.require(self.axis)] if nodes else ():
            for _ in range(self.count):
                node = rng.choice(nodes)
                factor = rng.randrange(len(node.sizes))
                work.propagator.cut(node, sub_axis, factor, str(self))
