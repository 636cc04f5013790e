"""A lower bound on the seconds of tensor parallelism along an axis of a mesh.

A mesh axis cuts a product's rows (batch, sequence) or the product's weight. If it cuts
the weight, devices along the axis exchange the activations: they gather the operand, or
sum the result. With many devices along an axis, few rows are left over for the other
axes, and these exchanges take longer than a whole step of another mesh. An axis that
only cuts rows does so as well on a mesh that is not left out: that of one axis, or one
whose other axis is smaller.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from meshwright.errors import MeshwrightError
from meshwright.machine import Machine, Mesh
from meshwright.machine.placement import (
    Segment,
    place_mesh,
    placed_by,
    placement_matrices,
)
from meshwright.partitioner.decide import apply_tactics
from meshwright.partitioner.lower.product_dims import ProductDims
from meshwright.partitioner.propagate import Graph
from meshwright.partitioner.tactics import data_parallel
from meshwright.planner.integer_program.integer_program import IntegerProgram
from meshwright.planner.solve.space import Space
from meshwright.planner.solve.work_rates import READ_EXPERT
from meshwright.predict.links.collective import COLLECTIVE_S
from meshwright.program.analysis.executions import op_executions
from meshwright.program.capture import Captured
from meshwright.program.ir import Op, Value, num_bytes
from meshwright.search.work import Work

_SHARED = 0.5
"""Share of the exchanges of single products that remain at least.

Products that read one value share its gather, and sums of several products are reduced
together: the query, key and value of attention, or a gated MLP.
"""

_PROBE = 1e8
"""Bytes of an all-gather by which links are compared: those of a large activation."""

_FEW_MESHES = 8
"""Number of meshes of a search up to which none is left out.

There are as many with two axes on 512 devices. The bound takes an axis to have one role in
all products, which is no proof, and solving so many meshes is cheap.
"""

_MOST_PLACEMENTS = 100
"""Largest number of placements of a mesh among which that of each axis is chosen."""

_SHOWN = 4
"""Largest number of meshes that a note names."""

_ROWS = "rows"
"""Name of the axis by which the rows of products are found."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """Activations that devices exchange if an axis cuts the weight of products.

    num_bytes: bytes of the whole value. runs: number of times in a step.
    experts: number of weights in the product, as of a mixture of experts, whose dim an
        axis may cut without such an exchange; 1 for an ordinary product.
    """

    num_bytes: int
    runs: int
    experts: int


def exchanges_of(captured: Captured, graph: Graph) -> tuple[Exchange, ...]:
    """The exchanges of a program's products of activations and weights.

    Empty for a program in which data parallelism finds no batch.
    """
    try:
        work = apply_tactics(
            captured, Mesh({_ROWS: 2}), (data_parallel(_ROWS),), graph=graph
        )
    except MeshwrightError:
        return ()
    least: dict[tuple[Value, int, int], list[int]] = defaultdict(list)
    for op, runs in op_executions(graph.program):
        node = graph.op_node.get(op)
        if node is None or op.kind != "dot_general":
            continue
        has_rows = [
            work.state.sharding_at(node, port).dim_of(_ROWS) is not None
            for port in node.ins
        ]
        if sum(has_rows) == 1:
            activation = op.operands[has_rows.index(True)]
            assert isinstance(activation, Value), "a cut operand is no constant"
            key = activation, runs, _num_experts(op)
            least[key].append(num_bytes(op.results[0]))
    return tuple(
        Exchange(min(num_bytes(activation), sum(results)), runs, experts)
        for (activation, runs, experts), results in least.items()
    )


def _num_experts(op: Op) -> int:
    """The number of weights in a product: the size of its batch dims."""
    size, left = 1, op.operands[0]
    for dim in ProductDims.of(op).batch[0]:
        size *= left.shape[dim]
    return size


def least_exchange_s(
    exchanges: Sequence[Exchange], mesh: Mesh, machine: Machine, earlier: Sequence[Mesh]
) -> float:
    """Seconds of the exchanges along that axis of a mesh for which they take least.

    Each axis is placed for itself, on the fastest links. 0 for a mesh of one axis.
    earlier: meshes before this one in the search. An axis does not count if one of them
        has the same sizes in another order, and this size at the end: it offers the same
        plans, since the simulation of a plan chooses the placement.
    """
    if len(mesh.axes) == 1:
        return 0.0
    known = {m.sizes[-1][1] for m in earlier if _sizes(m) == _sizes(mesh)}
    return min(
        (
            _axis_s(
                exchanges, size, mesh.num_devices // size, _links(mesh, axis, machine)
            )
            for axis, size in mesh.sizes
            if size not in known
        ),
        default=math.inf,
    )


def _sizes(mesh: Mesh) -> list[int]:
    return sorted(size for _, size in mesh.sizes)


def _links(mesh: Mesh, axis: str, machine: Machine) -> Sequence[Segment]:
    """The fastest links on which an axis of a mesh may lie."""
    matrices = placement_matrices(mesh, machine)
    if len(matrices) > _MOST_PLACEMENTS:
        return place_mesh(mesh, machine).of((axis,))
    placed = (placed_by(matrix, mesh, machine).of((axis,)) for matrix in matrices)
    return min(placed, key=lambda links: _gather_s(_PROBE, links))


def _axis_s(
    exchanges: Sequence[Exchange], size: int, rows: int, links: Sequence[Segment]
) -> float:
    """Seconds of the exchanges along an axis, if all other axes cut the rows in `rows`."""
    if any(each.experts > 1 and each.experts % size == 0 for each in exchanges):
        return 0.0
    return _SHARED * sum(
        each.runs * _gather_s(each.num_bytes / rows, links) for each in exchanges
    )


def _gather_s(num_bytes: float, links: Sequence[Segment]) -> float:
    """Seconds of an all-gather."""
    return COLLECTIVE_S["all_gather"](num_bytes, links)


class MeshBound:
    """The bound of one search, by which it leaves out meshes without solving them.

    left_out: these meshes, each with a lower bound in seconds on those of its plans that
        other meshes do not offer.
    """

    def __init__(
        self,
        space: Space,
        meshes: Sequence[Mesh],
        count: Callable[[Work, float], None],
    ) -> None:
        self.left_out: dict[Mesh, float] = {}
        self._space, self._meshes, self._count = space, meshes, count
        self._computing_s = math.inf

    @cached_property
    def _exchanges(self) -> tuple[Exchange, ...]:
        self._count(READ_EXPERT, len(self._space.graph.nodes))
        return exchanges_of(self._space.captured, self._space.graph)

    def note_priced(self, model: IntegerProgram) -> None:
        """Note the seconds of all ops of a priced mesh at their fastest strategies."""
        computing_s = sum(float(costs.min()) for costs in model.costs)
        self._computing_s = min(self._computing_s, computing_s)

    def excludes(self, mesh: Mesh, stop_s: float) -> bool:
        """Whether a mesh's own plans take longer than `stop_s`; it is left out then."""
        if len(self._meshes) <= _FEW_MESHES or len(mesh.axes) == 1:
            return False
        if math.isinf(stop_s) or not self._exchanges:
            return False
        earlier = self._meshes[: self._meshes.index(mesh)]
        machine = self._space.machine
        exchange_s = least_exchange_s(self._exchanges, mesh, machine, earlier)
        if self._computing_s + exchange_s <= stop_s:
            return False
        self.left_out[mesh] = self._computing_s + exchange_s
        return True

    @property
    def note(self) -> str:
        """A sentence about the meshes that were left out; "" if there are none."""
        found = self.left_out
        if not found:
            return ""
        shown = "; ".join(map(str, [*found][:_SHOWN]))
        more = f"; {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        return (
            f"{len(found)} mesh{'es' * (len(found) > 1)} left out, since plans that no "
            f"other mesh offers exchange activations there along too many devices, and "
            f"take at least {min(found.values()):.3g} s a step: {shown}{more}"
        )
