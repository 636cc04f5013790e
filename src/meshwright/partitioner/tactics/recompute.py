"""The verb for memory: what is computed again on the way back, rather than kept."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from meshwright.errors import TacticError
from meshwright.partitioner.propagate import Graph
from meshwright.partitioner.structure.sites import sites_of
from meshwright.partitioner.structure.workspace import Workspace
from meshwright.partitioner.tactics.tactic import TacticKind
from meshwright.program.ir import Program, Value
from meshwright.program.rewrite.rematerialization import (
    backward_start,
    rematerialize,
    residuals,
)


@dataclass(frozen=True, slots=True)
class Recompute:
    """Keep what some ops make until the backward pass, and compute all else again.

    before: h waits        after: x waits, and h = f(x) runs once more on the way back
    It changes the program, so it is done before all other tactics.
    """

    keep: tuple[str, ...]
    axes = ()
    kind = TacticKind.PIN

    def rewrite(self, program: Program) -> Program:
        """The program with this in it; `TacticError` where nothing waits."""
        turn = backward_start(program)
        before = residuals(program, turn)
        if not before:
            raise TacticError(f"{self}: no value waits here for a backward pass")
        return rematerialize(program, self._kept(program), turn)

    def _kept(self, program: Program) -> set[Value]:
        by_name: dict[str, list[Value]] = defaultdict(list)
        for op in program.walk():
            by_name[op.kind] += op.results
            if op.kind == "tag":
                by_name[str(op.params["name"])] += op.results
        kept: set[Value] = set()
        graph: Graph | None = None
        for name in self.keep:
            if name in by_name:
                kept.update(by_name[name])
            else:
                graph = graph or Graph(program)
                nodes = sites_of(graph).find(name)
                kept.update(graph.values[v] for n in nodes for v, _ in n.outs)
        return kept

    def apply(self, work: Workspace) -> None:
        """Nothing more: the program has been changed by now."""

    def __str__(self) -> str:
        return f"recompute(keep={list(self.keep)!r})"


def recompute(keep: str | Sequence[str]) -> Recompute:
    """A tactic: keep only what some ops make for the backward pass; make the rest again.

    keep: names of ops, as `mw.cut` reads them (`"mlp.py:7 dot_general"`), kinds of ops
    (`"dot_general"`), or names given by `mw.tag`; all ops of a name. What is made again
    is made of these and of the step's inputs, just before it is read; what a loop's turns
    make, in the same turns of the loop that reads it, for which its carries are kept.
    Loops run once: what they end with is kept, and with "scan" all that they stack.
    Raises `TacticError`, when it is applied, for a name of nothing, or where nothing is
    kept for a backward pass in the first place.
    """
    return Recompute((keep,) if isinstance(keep, str) else tuple(keep))
