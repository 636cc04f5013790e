"""What a plan says about itself: collectives, leaves, steps, and why."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from jax.sharding import PartitionSpec

from meshwright.app.explain.trace import Names
from meshwright.app.explain.why import Why, describe_conflict, explain_collective
from meshwright.partitioner.decide import Decided
from meshwright.partitioner.lower import executions
from meshwright.partitioner.propagate import Conflict, Node, user_axes
from meshwright.partitioner.tactics import Tactic, Workspace
from meshwright.program.ir import Atom, Op, Sharding, num_bytes, show_type


@dataclass(frozen=True, slots=True)
class Collective:
    """One collective op.

    bytes: of the larger of operand and result, on one device. executions: per step.
    source: `file:line` of the user's code. value: what a device puts in, as a type.
    reason: why it is there, in one sentence. chain: the decisions that led to it, the
    nearest first.
    """

    kind: str
    axes: tuple[str, ...]
    bytes: int
    executions: int
    reason: str
    source: str
    value: str
    chain: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Leaf:
    """One input or output: spec has per dim the axes that cut it, major to minor."""

    path: str
    shape: tuple[int, ...]
    dtype: str
    spec: tuple[tuple[str, ...], ...]

    @property
    def partition_spec(self) -> PartitionSpec:
        """As JAX writes it."""
        return PartitionSpec(*(a[0] if len(a) == 1 else (a or None) for a in self.spec))

    def __str__(self) -> str:
        return f"{self.path}: {show_type(self.shape, self.dtype)} {Sharding(self.spec)}"


@dataclass(frozen=True, slots=True)
class Step:
    """What one tactic did.

    cut: leaves newly cut. refused: what it asked for and did not get. conflicts: ops
    where two dims wanted the axis, with both sides. indivisible: dims where the
    propagation stopped because the parts did not divide or line up. counts:
    collectives after it.
    """

    tactic: str
    cut: tuple[str, ...]
    refused: tuple[str, ...]
    conflicts: tuple[str, ...]
    indivisible: tuple[str, ...]
    counts: Mapping[str, int]

    @property
    def is_idle(self) -> bool:
        """True when it did nothing and nothing was asked of it."""
        told = (self.cut, self.refused, self.conflicts, self.indivisible)
        return not any(told) and not any(self.counts.values())


@dataclass(frozen=True, slots=True)
class Seen:
    """What steps have told so far; the next one tells only what is new."""

    specs: tuple[Sharding | None, ...] = ()
    num_refusals: int = 0
    num_conflicts: int = 0
    indivisible: frozenset[str] = frozenset()


def describe_leaves(
    paths: Sequence[str],
    values: Sequence[Atom],
    shardings: Sequence[Sharding],
    units: Mapping[str, tuple[str, ...]],
) -> tuple[Leaf, ...]:
    """A `Leaf` for each path."""
    return tuple(
        Leaf(p, v.shape, v.dtype, tuple(join_units(axes, units) for axes in s.dims))
        for p, v, s in zip(paths, values, shardings, strict=True)
    )


def join_units(
    axes: tuple[str, ...], units: Mapping[str, tuple[str, ...]]
) -> tuple[str, ...]:
    """Axes of one dim, the units of an axis by its name where all stand in a row."""
    for axis, parts in units.items():
        for i in range(len(axes) - len(parts) + 1):
            if axes[i : i + len(parts)] == parts:
                return join_units((*axes[:i], axis, *axes[i + len(parts) :]), {
                    a: p for a, p in units.items() if a != axis
                })  # fmt: skip
    return axes


def describe_collectives(decided: Decided) -> tuple[Collective, ...]:
    """A `Collective` for each collective op of the device program."""
    names = Names(decided.work, decided.captured.out_paths)
    rows: list[Collective] = []
    for op, times in executions(decided.lowered.program):
        reason, chain = _why(names, decided, op)
        size = max(num_bytes(op.operands[0]), num_bytes(op.results[0]))
        axes = op.params["axes"]
        assert isinstance(axes, tuple)
        value = show_type(op.operands[0].shape, op.operands[0].dtype)
        row = Collective(
            op.kind, user_axes(axes), size, times, reason, str(op.source), value, chain
        )
        rows.append(row)
    return tuple(rows)


def _why(names: Names, decided: Decided, op: Op) -> Why:
    origin = decided.lowered.origins.get(op)
    if origin is None or not origin.axes:
        return str(op.params["reason"]), ()
    return explain_collective(names, op, origin)


def describe_step(
    tactic: Tactic | None, work: Workspace, counts: Mapping[str, int], before: Seen
) -> tuple[Step, Seen]:
    """The step of one tactic, and what has been told with it."""
    state, names = work.state, Names(work)
    specs = tuple(state.sharding_at(n, n.outs[0]) for n in work.graph.input_nodes)
    old = before.specs or (None,) * len(specs)
    cut = tuple(
        str(Sharding(tuple(join_units(axes, work.sub_axes) for axes in spec.dims)))
        for spec in specs
    )
    conflicts = list(state.conflicts.values())
    indivisible = tuple(dict.fromkeys(_indivisible_dims(names)))
    step = Step(
        "constraints in the code" if tactic is None else str(tactic),
        tuple(
            f"{path} {shown}"
            for path, shown, spec, then in zip(work.paths, cut, specs, old, strict=True)
            if spec != then and not spec.is_whole
        ),
        tuple(map(str, work.refusals[before.num_refusals :])),
        tuple(describe_conflict(names, c) for c in conflicts[before.num_conflicts :]),
        tuple(line for line in indivisible if line not in before.indivisible),
        dict(counts),
    )
    told = before.indivisible | set(indivisible)
    return step, Seen(specs, len(work.refusals), len(conflicts), told)


# -- where the propagation stopped -----------------------------------------------------


def _indivisible_dims(names: Names) -> Iterator[str]:
    """Dims that a neighbour asks to cut, and that the parts do not divide."""
    state, graph = names.state, names.work.graph
    for axis in state.size:
        for node in graph.nodes:
            if axis in state.factor_of[node.index] or axis in state.blocked[node.index]:
                continue
            for value, dims in node.ins:
                dim = state.dim_on(value, axis)
                if dim is not None and dim >= 0:
                    owner = f"{names.value(value)} is cut"
                    yield from _refusal(names, node, axis, dims[dim], owner)
    for (value, axis), wanted in state.requests.items():
        maker = names.maker(value)
        if axis in state.factor_of[maker.index] or axis in state.blocked[maker.index]:
            continue
        dims = next(dims for number, dims in maker.outs if number == value)
        for dim, reader in wanted.items():
            owner = f"{names.node(graph.nodes[reader])} wants it cut"
            yield from _refusal(names, maker, axis, dims[dim], owner)


def _refusal(
    names: Names, node: Node, axis: str, factors: Collection[int], owner: str
) -> Iterator[str]:
    """One line if none of the factors of a dim can take the axis."""
    state, why = names.state, None
    for factor in factors:
        why = state.why_not(node, axis, factor)
        if why is None:
            return
    if why is not None:
        where = f"{names.node(node)} stays whole along {names.axes((axis,))}"
        yield f"{where}: {owner}, but {why}"


# -- ops without a rule ----------------------------------------------------------------


def whole_ops(decided: Decided) -> tuple[str, ...]:
    """Ops that stay whole for want of a rule, by kind and source line."""
    found: dict[str, None] = {}
    for op, node in decided.work.graph.op_node.items():
        if node.rule is not None and node.rule.opaque and _has_dims(op):
            found.setdefault(f"{op.kind} ({op.source}): {node.rule.opaque}")
    return tuple(found)


def _has_dims(op: Op) -> bool:
    return any(a.shape for a in (*op.operands, *op.results))


__all__ = [
    "Collective",
    "Conflict",
    "Leaf",
    "Seen",
    "Step",
    "describe_collectives",
    "describe_leaves",
    "describe_step",
    "join_units",
    "whole_ops",
]
