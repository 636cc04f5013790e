"""Data parallelism: every device works on its share of the batch."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from meshwright.errors import TacticError
from meshwright.partitioner.propagate import Node
from meshwright.partitioner.structure.structure import find_structure
from meshwright.partitioner.structure.views import is_open
from meshwright.partitioner.structure.workspace import Refusal, Workspace, find_nodes
from meshwright.partitioner.tactics.tactic import TacticKind, as_code


@dataclass(frozen=True, slots=True, repr=False)
class DataParallel:
    """Cut the batch dim of the data inputs along an axis.

    before: f32[32, 8], whole        after: f32[32, 8], dim 0 along the axis

    The batch dim is dim 0, or dim 1 if a scan runs over dim 0. Leaves whose batch dim
    differs from the most common extent are not cut here; propagation may cut them.
    """

    axis: str
    inputs: tuple[str, ...] = ()
    kind = TacticKind.STRATEGY
    rewrite = None

    @property
    def axes(self) -> tuple[str, ...]:
        return (self.axis,)

    def apply(self, work: Workspace) -> None:
        """Cut the data, all leaves together, and propagate."""
        work.mesh.require(self.axis)
        leaves = self._leaves(work)
        seeds = _same_extent(work, leaves, self.axis)
        done = len(work.refusals)
        work.cut(seeds, self.axis, str(self))
        if not any(work.is_cut(node, self.axis) for _, node in leaves):
            why = "; ".join(map(str, work.refusals[done:])) or "it has no dims"
            raise TacticError(f"{self} cuts nothing: {why}")

    def _leaves(self, work: Workspace) -> list[tuple[str, Node]]:
        if self.inputs:
            named = {p: n for glob in self.inputs for p, n in find_nodes(work, glob)}
            return [(path, n) for path, n in named.items() if work.value(n).shape]
        found = data_leaves(work)
        if not found:
            shown = ", ".join(work.paths[:8])
            raise TacticError(
                f"{self} finds no data among the inputs: all are state, weights, PRNG "
                f"keys or scalars ({shown}, ...); name the data, as in "
                "data_parallel(axis, inputs='batch.**')"
            )
        return found

    def __str__(self) -> str:
        if not self.inputs:
            return f"data_parallel({self.axis!r})"
        inputs = self.inputs[0] if len(self.inputs) == 1 else list(self.inputs)
        return f"data_parallel({self.axis!r}, inputs={inputs!r})"

    def __repr__(self) -> str:
        return as_code(self)


def data_parallel(axis: str, inputs: str | Sequence[str] | None = None) -> DataParallel:
    """Cut the batch along a mesh axis: `data_parallel("data")`.

    inputs: pattern, or several, of the leaves that carry the batch; by default those
        that are neither state nor weights nor PRNG keys nor scalars.
    Raises `TacticError` for what is no pattern, and where there is nothing to cut, when
    the tactic is applied.
    """
    patterns = (inputs,) if isinstance(inputs, str) else tuple(inputs or ())
    for pattern in patterns:
        if not isinstance(pattern, str):
            raise TacticError(
                f"data_parallel: inputs holds {pattern!r}; wanted patterns of paths, "
                "as in inputs='batch.**'"
            )
    return DataParallel(axis, patterns)


def data_leaves(work: Workspace) -> list[tuple[str, Node]]:
    """(path, node) of every input that is data."""
    nodes = work.graph.input_nodes
    return [(work.paths[i], nodes[i]) for i in find_structure(work).data]


def _same_extent(
    work: Workspace, leaves: list[tuple[str, Node]], axis: str
) -> list[tuple[str, Node, int]]:
    """(path, node, batch dim) of the leaves with the commonest batch extent."""
    seeds = [(path, node, _batch_dim(work, node)) for path, node in leaves]
    extents = [work.value(node).shape[dim] for _, node, dim in seeds]
    if not extents:
        return []
    count = Counter(extents)
    size = work.mesh.size(axis)
    ranks = [len(work.value(node).shape) for _, node, _ in seeds]
    _, batch = max(
        zip(ranks, extents, strict=True),
        key=lambda e: (count[e[1]], e[1] % size == 0, e[0]),
    )
    for (path, _, dim), extent in zip(seeds, extents, strict=True):
        if extent != batch:
            why = f"its dim {dim} has {extent} elements, the batch has {batch}"
            work.refusals.append(Refusal(path, axis, why))
    return [s for s, extent in zip(seeds, extents, strict=True) if extent == batch]


def _batch_dim(work: Workspace, node: Node) -> int:
    """The batch dim: 0, or 1 if readers need all of dim 0 and not all of dim 1."""
    if len(work.value(node).shape) < 2 or is_open(work.graph, node, 0):
        return 0
    return 1 if is_open(work.graph, node, 1) else 0
