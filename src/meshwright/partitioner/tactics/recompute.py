"""The `recompute` tactic: rematerialization of all but the results of some ops."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from meshwright.errors import TacticError
from meshwright.partitioner.propagate import Graph
from meshwright.partitioner.structure.sites import sites_of
from meshwright.partitioner.structure.workspace import Workspace
from meshwright.partitioner.tactics.tactic import TacticKind, as_code
from meshwright.program.ir import Program, Value
from meshwright.program.rewrite.rematerialization import (
    backward_start,
    rematerialize,
    residuals,
)


@dataclass(frozen=True, slots=True, repr=False)
class Recompute:
    """Save the results of some ops for the backward pass, and recompute the rest.

    before: the backward pass reads h = f(x)        after: it reads x and computes f(x)
    The tactic rewrites the program, so that it takes effect before all other tactics.
    """

    keep: tuple[str, ...]
    axes = ()
    kind = TacticKind.PIN

    def rewrite(self, program: Program) -> Program:
        """The program with rematerialization; `TacticError` if it has no residuals."""
        boundary = backward_start(program)
        before = residuals(program, boundary)
        if not before:
            raise TacticError(
                f"{self}: the program has no value that a forward pass saves for a "
                "backward pass; leave recompute out"
            )
        return rematerialize(program, self.kept_values(program), boundary)

    def kept_values(self, program: Program) -> set[Value]:
        """The values of the program and its bodies that `keep` names."""
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
        """Do nothing, since `rewrite` has changed the program already."""

    def __str__(self) -> str:
        return f"recompute(keep={list(self.keep)!r})"

    def __repr__(self) -> str:
        return as_code(self)


def recompute(keep: str | Sequence[str]) -> Recompute:
    """Save only the results of some ops for the backward pass, and recompute the rest.

    keep: names of ops as in `mw.cut` (`"mlp.py:7 dot_general"`), kinds of ops
        (`"dot_general"`), or names given by `mw.tag`; a name selects all of its ops.
    Other residuals are recomputed from the saved results and the step's inputs, just
    before they are read. Residuals that a loop stacks are recomputed in the iteration
    of the backward loop that reads them, from the saved carries. Loops are not run a
    second time: their final results are saved, and with "scan" in `keep` all that they
    stack.
    When it is applied, it raises `TacticError` for a name without ops, or if the
    program has no residuals.
    """
    names = (keep,) if isinstance(keep, str) else keep
    if not isinstance(names, Sequence) or not all(isinstance(n, str) for n in names):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TacticError(
            f"keep is {keep!r}; wanted names of ops, such as ['dot_general']"
        )
    return Recompute(tuple(names))
