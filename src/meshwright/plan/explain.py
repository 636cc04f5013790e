"""What a plan says about itself: collectives, leaves, steps, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jax.sharding import PartitionSpec

from meshwright.ir import Atom, Op, Sharding, num_bytes, show_type
from meshwright.lower import executions
from meshwright.plan.decide import Decided
from meshwright.propagate import Node, State, user_axes
from meshwright.tactics import Tactic, Workspace


@dataclass(frozen=True, slots=True)
class Collective:
    """One collective op.

    bytes: of the larger of operand and result, on one device. executions: per step.
    source: `file:line` of the user's code. chain: the decisions that led to it, the
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
    where two dims wanted the axis, with both sides. indivisible: dims that did not
    divide. counts: collectives after it.
    """

    tactic: str
    cut: tuple[str, ...]
    refused: tuple[str, ...]
    conflicts: tuple[str, ...]
    indivisible: tuple[str, ...]
    counts: Mapping[str, int]


def describe_leaves(
    paths: Sequence[str], values: Sequence[Atom], shardings: Sequence[Sharding]
) -> tuple[Leaf, ...]:
    """A `Leaf` for each path."""
    return tuple(
        Leaf(p, v.shape, v.dtype, s.dims) for p, v, s in zip(paths, values, shardings, strict=True)
    )


def describe_collectives(decided: Decided) -> tuple[Collective, ...]:
    """A `Collective` for each collective op of the device program."""
    rows = []
    for op, times in executions(decided.lowered.program):
        origin = decided.lowered.origins.get(op)
        chain: tuple[str, ...] = ()
        if origin is not None:
            chain = decision_chain(decided.work, origin.node, origin.axes)
        size = max(num_bytes(op.operands[0]), num_bytes(op.results[0]))
        axes = op.params["axes"]
        rows.append(
            Collective(
                op.kind, user_axes(axes), size, times, str(op.params["reason"]),  # type: ignore[arg-type]
                str(op.source), str(op.operands[0]), chain,
            )
        )  # fmt: skip
    return tuple(rows)


def decision_chain(work: Workspace, node: int, axes: tuple[str, ...]) -> tuple[str, ...]:
    """From a node back to the tactic that set its cut off, one sentence each."""
    state = work.state
    lines: list[str] = []
    for axis in axes:
        current: int | None = node
        if (node, axis) not in state.causes:
            current = _cut_neighbour(state, node, axis)
        seen: set[int] = set()
        while current is not None and current not in seen and len(lines) < 12:
            seen.add(current)
            cause = state.causes.get((current, axis))
            if cause is None:
                break
            lines.append(_describe_cause(work, current, axis, cause))
            current = cause.node
    return tuple(lines)


def _cut_neighbour(state: State, node: int, axis: str) -> int | None:
    """The producer of some operand that the axis cuts."""
    for value, _ in state.graph.nodes[node].ins:
        producer = state.graph.producer[value]
        if axis in state.factor_of[producer]:
            return producer
    return None


def _describe_cause(work: Workspace, index: int, axis: str, cause: Any) -> str:
    node = work.graph.nodes[index]
    where = name_of(work, node)
    if cause.how == "tactic":
        return f"{axis} cuts {where}: {cause.tactic}"
    how = "its operand is cut" if cause.how == "forward" else "its reader wants it cut"
    return f"{axis} cuts {where}: {how}"


def name_of(work: Workspace, node: Node) -> str:
    """A node for people: the leaf's path, or the op with its source line."""
    if node.input_position is not None:
        return work.paths[node.input_position]
    source = str(node.source)
    return f"{node.label} ({source})" if source else node.label


def describe_step(
    tactic: Tactic | None, work: Workspace, counts: Mapping[str, int], before: Any
) -> tuple[Step, Any]:
    """The step of one tactic, and what the next step must be compared with."""
    state = work.state
    specs = [
        state.sharding_at(n, n.outs[0]) for n in work.graph.input_nodes
    ]
    old_specs, old_refusals, old_conflicts = before or ([None] * len(specs), 0, 0)
    cut = tuple(
        f"{path} {spec}"
        for path, spec, old in zip(work.paths, specs, old_specs, strict=True)
        if spec != old and not spec.is_whole
    )
    conflicts = list(state.conflicts.values())
    step = Step(
        "constraints in the code" if tactic is None else str(tactic),
        cut,
        tuple(map(str, work.refusals[old_refusals:])),
        tuple(describe_conflict(work, c) for c in conflicts[old_conflicts:]),
        tuple(indivisible_dims(work)),
        dict(counts),
    )
    return step, (specs, len(work.refusals), len(conflicts))


def describe_conflict(work: Workspace, conflict: Any) -> str:
    """A conflict with both its sides."""
    node = work.graph.nodes[conflict.node]
    sides = " against ".join(
        f"{side} {work.graph.values[value]} (from {name_of(work, _maker(work, value))})"
        for _, value, side in conflict.sides
    )
    return f"{name_of(work, node)} stays whole along {conflict.axis!r}: {sides}"


def _maker(work: Workspace, value: int) -> Node:
    return work.graph.nodes[work.graph.producer[value]]


def indivisible_dims(work: Workspace) -> list[str]:
    """Ops whose operand is cut along an axis that does not divide the op's own dim."""
    state, lines = work.state, []
    for node in work.graph.nodes:
        for axis in state.size:
            if axis in state.factor_of[node.index]:
                continue
            for value, dims in node.ins:
                dim = state.dim_on(value, axis)
                if dim is None or dim < 0:
                    continue
                for factor in dims[dim]:
                    why = state.why_not(node, axis, factor)
                    if why is not None and "divide" in why:
                        lines.append(f"{name_of(work, node)} along {axis!r}: {why}")
                        break
    return list(dict.fromkeys(lines))


def whole_ops(decided: Decided) -> tuple[str, ...]:
    """Kinds of ops that stay whole for want of a rule, with the first source line."""
    found: dict[str, str] = {}
    for op, node in decided.work.graph.op_node.items():
        if node.rule is not None and node.rule.opaque and _has_dims(op):
            found.setdefault(op.kind, f"{op.kind} ({op.source}): {node.rule.opaque}")
    return tuple(found.values())


def _has_dims(op: Op) -> bool:
    return any(a.shape for a in (*op.operands, *op.results))
