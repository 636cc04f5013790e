"""ZeRO: optimizer state and parameters are sharded, and gathered where they are read.

With data parallelism along the same axis, stage 3 is fully sharded data parallelism.

Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter
Models", SC 2020.
"""

from dataclasses import dataclass

from meshwright.errors import TacticError
from meshwright.partitioner.propagate import Node
from meshwright.partitioner.structure.structure import Structure, find_structure
from meshwright.partitioner.structure.views import is_open
from meshwright.partitioner.structure.workspace import Workspace, find_nodes
from meshwright.partitioner.tactics.data_parallel import data_parallel
from meshwright.partitioner.tactics.tactic import AxisTactic, TacticKind, as_code

Leaves = list[tuple[str, Node]]


@dataclass(frozen=True, slots=True, repr=False)
class Zero:
    """Cut optimizer state (stage 2), or parameters as well (stage 3).

    The cut dim of a leaf is the first that the axis divides, other than a dim of stacked
    layers. Optimizer state is cut as its parameter is. Stage 2 keeps the parameters
    whole along the axis. A leaf without a divisible dim stays whole. Data parallelism
    along the same axis comes first: gradients are then reduce-scattered.
    """

    stage: int
    axis: str
    params: str | None = None
    state: str | None = None
    kind = TacticKind.STRATEGY
    rewrite = None

    @property
    def axes(self) -> tuple[str, ...]:
        return (self.axis,)

    def apply(self, work: Workspace) -> None:
        """Cut all leaves together, and propagate."""
        work.mesh.require(self.axis)
        structure = find_structure(work)
        params = _leaves(work, self.params, structure.params)
        state = _leaves(work, self.state, structure.optimizer)
        state = [leaf for leaf in state if leaf not in params]
        self._require(work, params, state)
        if self.state is None:
            state = _one_factor_each(work, structure, state, self.axis)
        dims = self._dims(work, structure, params, state)
        cut = state
        if self.stage == 2:
            uncut = [p for p in params if not work.is_cut(p[1], self.axis)]
            work.block(uncut, (self.axis,))
        else:
            cut = params + state
        seeds = [(p, n, d) for p, n in cut if (d := dims[n.index]) is not None]
        work.cut(seeds, self.axis, str(self))
        if not any(work.is_cut(node, self.axis) for _, node in cut):
            size = work.mesh.size(self.axis)
            shown = ", ".join(f"{path}: {work.value(node)}" for path, node in cut[:4])
            raise TacticError(f"{self} cuts nothing: {size} divides no dim of {shown}")

    def _require(self, work: Workspace, params: Leaves, state: Leaves) -> None:
        if self.stage == 2 and not state:
            raise TacticError(
                f"{self} finds no optimizer state: all that the step hands back acts "
                "on its other outputs too; zero(stage=3) cuts parameters"
            )
        if not params and not state:
            raise TacticError(
                f"{self} finds no parameters: no input is handed back or multiplied "
                f"with data ({', '.join(work.paths[:8])}, ...); name them by params="
            )

    def _dims(
        self, work: Workspace, structure: Structure, params: Leaves, state: Leaves
    ) -> dict[int, int | None]:
        """By node, the dim to cut; `None` if it is cut already or no dim is divisible."""
        nodes = work.graph.input_nodes
        dims = {n.index: _first_open(work, n, self.axis, n) for _, n in params}
        for _, node in state:
            position = -1 if node.input_position is None else node.input_position
            owners = structure.owner.get(position, ())
            like = next(
                (nodes[p] for p in owners if _alike(work, nodes[p], node)), None
            )
            same = like is not None and work.value(like).shape == work.value(node).shape
            dim = dims.get(like.index) if same and like is not None else None
            if dim is None or work.is_cut(node, self.axis):
                dim = _first_open(work, node, self.axis, like)
            dims[node.index] = dim
        return dims

    def __str__(self) -> str:
        params = "" if self.params is None else f", params={self.params!r}"
        state = "" if self.state is None else f", state={self.state!r}"
        return f"zero({self.stage}, {self.axis!r}{params}{state})"

    def __repr__(self) -> str:
        return as_code(self)


def zero(
    stage: int, axis: str, params: str | None = None, state: str | None = None
) -> Zero:
    """Cut optimizer state (stage 2) and parameters (stage 3): `zero(3, "data")`.

    params, state: patterns of parameters and of optimizer state; found by default.
    Raises `TacticError` for another stage or what is no pattern, and where there is
    nothing to cut when the tactic is applied.
    """
    if stage not in (2, 3):
        raise TacticError(f"zero has stages 2 and 3, not {stage!r}")
    patterns: dict[str, object] = {"params": params, "state": state}
    for name, pattern in patterns.items():
        if not isinstance(pattern, str | None):
            raise TacticError(
                f"zero: {name} is {pattern!r}; wanted a pattern of paths, as in "
                f"{name}='{name}.**'"
            )
    return Zero(stage, axis, params, state)


def fsdp(axis: str) -> AxisTactic:
    """Cut batch, parameters and optimizer state along one axis: `fsdp("data")`.

    Applies `data_parallel(axis)`, unless the axis is in use already, and `zero(3, axis)`.
    """
    return AxisTactic("fsdp", axis, _cut_fully)


def _cut_fully(work: Workspace, axis: str, tactic: str) -> None:
    del tactic  # errors and causes name the two tactics
    if not any(work.is_cut(node, axis) for node in work.graph.input_nodes):
        data_parallel(axis).apply(work)
    zero(3, axis).apply(work)


def _leaves(work: Workspace, pattern: str | None, found: tuple[int, ...]) -> Leaves:
    if pattern is not None:
        return find_nodes(work, pattern)
    return [(work.paths[i], work.graph.input_nodes[i]) for i in found]


def _one_factor_each(
    work: Workspace, structure: Structure, state: Leaves, axis: str
) -> Leaves:
    """Optimizer state with one factored moment per parameter, the row moment if possible.

    A gradient is cut on one dim. Cutting both its row and its column moments would
    reshard it. Propagation cuts the moments that are left out, where it can.
    """
    nodes = work.graph.input_nodes
    owners: dict[int, tuple[Node, ...]] = {}
    for _, node in state:
        assert node.input_position is not None
        found = [nodes[p] for p in structure.owner.get(node.input_position, ())]
        if all(_rank(work, node) < _rank(work, p) for p in found):
            owners[node.index] = tuple(found)
    chosen: dict[int, int] = {}
    for is_row in (True, False):
        for _, node in state:
            if not work.divisible_dims(node, axis):
                continue
            for param in owners.get(node.index, ()):
                if _alike(work, param, node) is is_row:
                    chosen.setdefault(param.index, node.index)
    return [
        (path, node)
        for path, node in state
        if not owners.get(node.index)
        or any(chosen.get(p.index) == node.index for p in owners[node.index])
    ]


def _rank(work: Workspace, node: Node) -> int:
    return len(work.value(node).shape)


def _alike(work: Workspace, param: Node, leaf: Node) -> bool:
    """Whether a leaf has as many rows as a parameter, as moments of its rows have."""
    return work.value(param).shape[:1] == work.value(leaf).shape[:1]


def _first_open(
    work: Workspace, node: Node, axis: str, like: Node | None
) -> int | None:
    """The first dim that an axis divides, preferably one that is open in `like`."""
    found = work.divisible_dims(node, axis)
    rank = 0 if like is None else _rank(work, like)
    for dim in found:
        if like is None or dim >= rank or is_open(work.graph, like, dim):
            return dim
    return found[0] if found else None
