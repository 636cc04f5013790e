"""ZeRO: optimizer state and parameters are sharded, and gathered where they are read.

With data parallelism along the same axis, stage 3 is fully sharded data parallelism.

Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter
Models", SC 2020.
"""

import math
from dataclasses import dataclass
from functools import partial

from meshwright.errors import TacticError
from meshwright.partitioner.propagate import Node
from meshwright.partitioner.structure.input_roles import InputRoles
from meshwright.partitioner.structure.views import is_open
from meshwright.partitioner.structure.workspace import (
    Workspace,
    find_nodes,
    list_groups,
)
from meshwright.partitioner.tactics.data_parallel import data_parallel
from meshwright.partitioner.tactics.role_names import Patterns, RoleNames, role_names
from meshwright.partitioner.tactics.tactic import AxisTactic

Leaves = list[tuple[str, Node]]


LEAST_ELEMENTS = 16_384
"""A leaf with fewer elements saves too little memory for a collective's time.

16,384 elements are 64 KiB in float32. Their all-gather over a ring of 8 TPU v5p takes 7
us for 7 hops of 1 us, and 0.6 us for the bytes at 90 GB/s.
"""
SMALL_SHARE = 0.01
"""Largest share of all elements in leaves that stay unsharded by default.

Biases and norms of large models have less; small models have every leaf sharded.
"""


@dataclass(frozen=True, slots=True)
class _StateCut:
    """Shards optimizer state (stage 2), or also parameters (stage 3).

    The sharded dim of a leaf is the first that the axis divides, other than a dim of
    stacked layers. Optimizer state is sharded as its parameter is. Stage 2 forbids to
    shard parameters. A leaf without a divisible dim stays unsharded.
    """

    stage: int
    names: RoleNames
    state: tuple[str, ...]
    min_elements: int | None

    def __call__(self, work: Workspace, axis: str, tactic: str) -> None:
        roles = self.names.find_roles(work)
        params = _leaves(work, self.names.params, roles.params)
        state = _leaves(work, self.state, roles.optimizer)
        state = [leaf for leaf in state if leaf not in params]
        self._require(work, tactic, params, state)
        asked = state if self.stage == 2 else [*params, *state]
        small = _small(work, asked, self.min_elements)
        if not self.state:
            state = _one_factor_each(work, roles, state, axis)
        dims = _dims(work, roles, params, state, axis)
        cut = state
        if self.stage == 2:
            uncut = [p for p in params if not work.is_cut(p[1], axis)]
            work.block(uncut, (axis,))
        else:
            cut = params + state
        cut = [leaf for leaf in cut if leaf[1].index not in small]
        seeds = [(p, n, d) for p, n in cut if (d := dims[n.index]) is not None]
        work.cut(seeds, axis, tactic)
        if not any(work.is_cut(node, axis) for _, node in cut):
            size = work.mesh.size(axis)
            shown = ", ".join(f"{path}: {work.value(node)}" for path, node in cut[:4])
            why = (
                f"{size} divides no dim of {shown}"
                if cut
                else f"no leaf has min_elements={self.min_elements} elements"
            )
            raise TacticError(f"{tactic} cuts nothing: {why}")

    def _require(
        self, work: Workspace, tactic: str, params: Leaves, state: Leaves
    ) -> None:
        if self.stage == 2 and not state:
            raise TacticError(
                f"{tactic} finds no optimizer state: all that the step hands back acts "
                "on its other outputs too; name it by state=, as in zero(2, axis, "
                f"state='state.opt.**'), or cut parameters by zero(3, axis); the inputs "
                f"are {list_groups(work)}"
            )
        if not params and not state:
            raise TacticError(
                f"{tactic} finds no parameters: no input is handed back or multiplied "
                "with data; name them by params=, as in zero(3, axis, "
                f"params='state.params.**'); the inputs are {list_groups(work)}"
            )


def zero(
    stage: int,
    axis: str,
    params: Patterns = None,
    state: Patterns = None,
    min_elements: int | None = None,
    inputs: Patterns = None,
) -> AxisTactic:
    """Shard optimizer state (stage 2) and parameters (stage 3): `zero(3, "data")`.

    Data parallelism along the same axis comes first: gradients are then
    reduce-scattered.
    params, state: patterns of parameters and of optimizer state; found by default.
    inputs: patterns of data, where `docs/tactics.md` would not find them.
    min_elements: leaves with fewer elements stay unsharded; 0 shards all. By default
        leaves of fewer than 16,384 elements, such as biases, stay unsharded if they
        have at most 1 % of all elements: a collective for each would cost its latency,
        and sharding them would save hardly any memory.
    Raises `TacticError` for another stage or an invalid pattern and, when the tactic is
    applied, if there is nothing to shard.
    """
    if stage not in (2, 3):
        raise TacticError(f"zero has stages 2 and 3, not {stage!r}")
    names = role_names("zero", params, inputs)
    of_state = role_names("zero", state, None).params
    _require_count("zero", min_elements)
    values = {"params": params, "state": state, "min_elements": min_elements}
    values["inputs"] = inputs
    options = "".join(f", {k}={v!r}" for k, v in values.items() if v is not None)
    call = f"zero({stage}, {axis!r}{options})"
    return AxisTactic(call, axis, _StateCut(stage, names, of_state, min_elements))


def fsdp(
    axis: str,
    min_elements: int | None = None,
    params: Patterns = None,
    inputs: Patterns = None,
) -> AxisTactic:
    """Shard batch, parameters and optimizer state along one axis: `fsdp("data")`.

    Applies `data_parallel(axis)`, unless the axis is used already, and `zero(3, axis)`.

    min_elements: as in `zero`.
    params, inputs: patterns of weights and of data, where `docs/tactics.md` would not find
        them.
    """
    _require_count("fsdp", min_elements)
    names = role_names("fsdp", params, inputs)
    options = "" if min_elements is None else f", min_elements={min_elements}"
    options += names.options
    cut_fn = partial(_cut_all, names, min_elements)
    return AxisTactic(f"fsdp({axis!r}{options})", axis, cut_fn)


def _cut_all(
    names: RoleNames,
    min_elements: int | None,
    work: Workspace,
    axis: str,
    tactic: str,
) -> None:
    """Shard batch, parameters and optimizer state."""
    del tactic  # errors and causes name the two tactics
    names.find_roles(work)
    if not any(work.is_cut(node, axis) for node in work.graph.nodes):
        data_parallel(axis, names.inputs or None).apply(work)
    zero(3, axis, min_elements=min_elements).apply(work)


def _require_count(name: str, count: object) -> None:
    if count is None or (
        isinstance(count, int) and not isinstance(count, bool) and count >= 0
    ):
        return
    raise TacticError(
        f"{name}: min_elements is {count!r}; wanted a number of elements, 0 for all "
        "leaves, or None for the default"
    )


def _small(work: Workspace, leaves: Leaves, least: int | None) -> set[int]:
    """The indices of nodes with too few elements to be sharded, fewer than `least`."""
    elements = {node.index: math.prod(work.value(node).shape) for _, node in leaves}
    if least is not None:
        return {index for index, count in elements.items() if count < least}
    allowed = SMALL_SHARE * sum(elements.values())
    small: set[int] = set()
    for size in sorted({n for n in elements.values() if n < LEAST_ELEMENTS}):
        alike = {index for index, count in elements.items() if count == size}
        allowed -= size * len(alike)
        if allowed < 0:
            break
        small |= alike
    return small


def _one_factor_each(
    work: Workspace, roles: InputRoles, state: Leaves, axis: str
) -> Leaves:
    """Optimizer state with only one factored moment per parameter, by rows if possible.

    A gradient is sharded on one dim, so that sharding both its row and its column
    moments would reshard it. Propagation shards the moments left out, if it can.
    """
    owners: dict[int, list[Node]] = {}
    for _, node in state:
        params = _owners(work, roles, node)
        if all(_rank(work, node) < _rank(work, p) for p in params):
            owners[node.index] = params
    leaf_of: dict[int, int] = {}
    for is_row in (True, False):
        for _, node in state:
            if not work.divisible_dims(node, axis):
                continue
            for param in owners.get(node.index, ()):
                if _alike(work, param, node) is is_row:
                    leaf_of.setdefault(param.index, node.index)
    return [
        (path, node)
        for path, node in state
        if not owners.get(node.index)
        or any(leaf_of.get(p.index) == node.index for p in owners[node.index])
    ]


def _leaves(
    work: Workspace, patterns: tuple[str, ...], positions: tuple[int, ...]
) -> Leaves:
    """The inputs that patterns match, or those at some positions without patterns."""
    if not patterns:
        return work.leaves(positions)
    return [*{leaf: None for glob in patterns for leaf in find_nodes(work, glob)}]


def _owners(work: Workspace, roles: InputRoles, node: Node) -> list[Node]:
    """The parameters of a leaf of optimizer state."""
    owners = () if node.input_position is None else roles.owner.get(node.input_position)
    return [work.graph.input_nodes[position] for position in owners or ()]


def _rank(work: Workspace, node: Node) -> int:
    return len(work.value(node).shape)


def _alike(work: Workspace, param: Node, leaf: Node) -> bool:
    """Whether a leaf has as many rows as a parameter, as row moments of it have."""
    return work.value(param).shape[:1] == work.value(leaf).shape[:1]


def _first_open(
    work: Workspace, node: Node, axis: str, like: Node | None
) -> int | None:
    """The first dim that an axis divides, preferably one that `is_open` in `like`.

    `like` is the parameter of the leaf; no reader needs all of an open dim.
    """
    dims = work.divisible_dims(node, axis)
    rank = 0 if like is None else _rank(work, like)
    for dim in dims:
        if like is None or dim >= rank or is_open(work.graph, like, dim):
            return dim
    return dims[0] if dims else None


def _dims(
    work: Workspace, roles: InputRoles, params: Leaves, state: Leaves, axis: str
) -> dict[int, int | None]:
    """The dim to shard of each node, or `None` if sharded already or impossible."""
    dims = {n.index: _first_open(work, n, axis, n) for _, n in params}
    for _, node in state:
        alike = (p for p in _owners(work, roles, node) if _alike(work, p, node))
        like, dim = next(alike, None), None
        if like is not None and work.value(like).shape == work.value(node).shape:
            dim = dims.get(like.index)
        if dim is None or work.is_cut(node, axis):
            dim = _first_open(work, node, axis, like)
        dims[node.index] = dim
    return dims
