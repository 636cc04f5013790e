"""Descriptions of a plan's collectives, leaves and tactics, as records of plain data.

A leaf is one array among the inputs or outputs (pytree leaf).
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from meshwright.app.explain.names import ProgramNames
from meshwright.app.explain.why import describe_conflict, explain_collective
from meshwright.app.record.plan_record import Collective, Leaf, TacticEffect
from meshwright.partitioner.decide import Decided
from meshwright.partitioner.lower import executions
from meshwright.partitioner.propagate import Node, join_sub_axes, user_axes, why_not
from meshwright.partitioner.tactics import Tactic, Workspace
from meshwright.program.ir import Atom, Sharding, num_bytes, show_type


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state before a tactic, with which the state after the tactic is compared.

    specs: shardings of the inputs. num_refusals, num_conflicts: how many messages about
        refused requests and about conflicts earlier tactics have left.
    indivisible: messages of earlier tactics about dims that an axis does not divide.
    """

    specs: tuple[Sharding | None, ...] = ()
    num_refusals: int = 0
    num_conflicts: int = 0
    indivisible: frozenset[str] = frozenset()


def describe_leaves(
    paths: Sequence[str],
    values: Sequence[Atom],
    shardings: Sequence[Sharding],
    sub_axes: Mapping[str, tuple[str, ...]],
) -> tuple[Leaf, ...]:
    """A `Leaf` record for each input or output, with its path, type and sharding.

    sub_axes: the sub-axes of each mesh axis; a sharding over all of them shows the axis.
    """
    return tuple(
        Leaf(
            path,
            value.shape,
            value.dtype,
            tuple(join_sub_axes(axes, sub_axes) for axes in sharding.dims),
        )
        for path, value, sharding in zip(paths, values, shardings, strict=True)
    )


def describe_collectives(decided: Decided) -> tuple[Collective, ...]:
    """A `Collective` record for each collective op of the device program."""
    names = ProgramNames(decided.work, decided.captured.out_paths)
    rows: list[Collective] = []
    for op, times in executions(decided.lowered.program):
        origin = decided.lowered.origins.get(op)
        if origin is None or not origin.axes:
            reason, chain = str(op.params["reason"]), ()
        else:
            reason, chain = explain_collective(names, op, origin)
        size = max(num_bytes(op.operands[0]), num_bytes(op.results[0]))
        axes = op.params["axes"]
        assert isinstance(axes, tuple)
        value = show_type(op.operands[0].shape, op.operands[0].dtype)
        row = Collective(
            op.kind, user_axes(axes), size, times, reason, str(op.source), value, chain
        )
        rows.append(row)
    return tuple(rows)


def describe_tactic(
    tactic: Tactic | None, work: Workspace, counts: Mapping[str, int], before: Snapshot
) -> tuple[TacticEffect, Snapshot]:
    """The record of what one tactic changed, and the snapshot for the next tactic.

    tactic: `None` stands for the sharding constraints in the user's code.
    counts: number of collectives after the tactic, by kind.
    """
    state, names = work.state, ProgramNames(work)
    specs = tuple(state.sharding_at(n, n.outs[0]) for n in work.graph.input_nodes)
    old_specs = before.specs or (None,) * len(specs)
    shown = tuple(
        str(Sharding(tuple(join_sub_axes(axes, work.sub_axes) for axes in spec.dims)))
        for spec in specs
    )
    conflicts = list(state.conflicts.values())
    indivisible = tuple(dict.fromkeys(_indivisible_dims(names)))
    effect = TacticEffect(
        "constraints in the code" if tactic is None else str(tactic),
        tuple(
            f"{path} {text}"
            for path, text, spec, old in zip(
                work.paths, shown, specs, old_specs, strict=True
            )
            if spec != old and not spec.is_whole
        ),
        tuple(map(str, work.refusals[before.num_refusals :])),
        tuple(describe_conflict(names, c) for c in conflicts[before.num_conflicts :]),
        tuple(line for line in indivisible if line not in before.indivisible),
        dict(counts),
    )
    described = before.indivisible | set(indivisible)
    return effect, Snapshot(specs, len(work.refusals), len(conflicts), described)


# -- dims at which propagation stopped -------------------------------------------------


def _indivisible_dims(names: ProgramNames) -> Iterator[str]:
    """Lines about dims where propagation stopped because they do not divide.

    Such a dim stays unsharded although a neighbouring op or value is sharded there: the
    size of the axis does not divide the size of the dim.
    """
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
    names: ProgramNames, node: Node, axis: str, factors: Collection[int], owner: str
) -> Iterator[str]:
    """One line of text if the axis can split none of the factors of a dim, else no line.

    owner: text about the neighbouring op or value that asks for the split.
    """
    state, why = names.state, None
    for factor in factors:
        why = why_not(state, node, axis, factor)
        if why is None:
            return
    if why is not None:
        where = f"{names.node(node)} stays whole along {names.axes((axis,))}"
        yield f"{where}: {owner}, but {why}"


# -- ops without a sharding rule -------------------------------------------------------


def replicated_ops(decided: Decided) -> tuple[str, ...]:
    """Lines about ops that are replicated because they have no sharding rule.

    A line has the op's kind, its source line and the reason.
    """
    found: dict[str, None] = {}
    for op, node in decided.work.graph.op_node.items():
        has_dims = any(a.shape for a in (*op.operands, *op.results))
        if node.rule is not None and node.rule.opaque and has_dims:
            found.setdefault(f"{op.kind} ({op.source}): {node.rule.opaque}")
    return tuple(found)
