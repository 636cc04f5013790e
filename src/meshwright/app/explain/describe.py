"""Descriptions of a plan's collectives, leaves and tactics, as records of plain data.

A leaf is one array among the inputs or outputs (pytree leaf).
"""

from collections.abc import Collection, Iterator, Mapping, Sequence

from meshwright.app.explain.names import ProgramNames, describe_conflict
from meshwright.app.explain.why import explain_collective
from meshwright.app.record.parts import Collective, Leaf, TacticEffect
from meshwright.partitioner.decide import Decided
from meshwright.partitioner.lower import (
    Gather,
    Lowered,
    count_collectives,
    executions,
    lower,
)
from meshwright.partitioner.propagate import Node, join_sub_axes, user_axes, why_not
from meshwright.partitioner.tactics import Tactic, Workspace
from meshwright.predict.compilers.xla.workarounds import XLA_WORKAROUNDS
from meshwright.program.ir import Atom, Sharding, num_bytes, show_type


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
        Leaf(path, value.shape, value.dtype, _user_sharding(sharding, sub_axes).dims)
        for path, value, sharding in zip(paths, values, shardings, strict=True)
    )


def _user_sharding(
    sharding: Sharding, sub_axes: Mapping[str, tuple[str, ...]]
) -> Sharding:
    """The sharding by the user's mesh axes, in place of all sub-axes of an axis."""
    return Sharding(tuple(join_sub_axes(axes, sub_axes) for axes in sharding.dims))


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


# -- the effect of each tactic ---------------------------------------------------------


class TacticObserver:
    """A callback for `apply_tactics`, which records the effect of each tactic.

    effects: the records, one for each call of `after_tactic`.
    lowered: the device program after the last tactic.
    """

    def __init__(
        self, num_tactics: int, gather: Gather, last_lowered: Lowered | None
    ) -> None:
        """An observer of tactics that has seen none.

        last_lowered: the device program after all tactics, if the caller has it already.
        """
        self.effects: list[TacticEffect] = []
        self.lowered: Lowered | None = None
        self._num_tactics = num_tactics
        self._gather = gather
        self._last_lowered = last_lowered
        self._specs: Sequence[Sharding] = ()  # of the inputs, before the tactic
        self._counts: dict[str, int] = {}
        self._version = -1  # version of the state that `lowered` comes from

    def after_tactic(self, tactic: Tactic | None, work: Workspace) -> None:
        """Record the effect of the tactic just applied.

        tactic: `None` for the sharding constraints in the user's code, which are applied
            first.
        """
        is_last = len(self.effects) == self._num_tactics
        # If the tactic has changed nothing, the last device program is still right.
        last = self._last_lowered if is_last else None
        if work.state.version != self._version or last is not None:
            self.lowered = last or lower(work.state, self._gather, XLA_WORKAROUNDS)
            self._counts = count_collectives(self.lowered.program)
            self._version = work.state.version
        names, conflicts = ProgramNames(work), list(work.state.conflicts.values())
        num_refused = sum(len(each.refused) for each in self.effects)
        num_conflicts = sum(len(each.conflicts) for each in self.effects)
        earlier = {line for each in self.effects for line in each.indivisible}
        indivisible = dict.fromkeys(_indivisible_dims(names))
        effect = TacticEffect(
            tactic="constraints in the code" if tactic is None else str(tactic),
            cut=self._newly_cut(work),
            refused=tuple(map(str, work.refusals[num_refused:])),
            conflicts=tuple(
                describe_conflict(names, c) for c in conflicts[num_conflicts:]
            ),
            indivisible=tuple(line for line in indivisible if line not in earlier),
            counts=dict(self._counts),
        )
        self.effects.append(effect)

    def _newly_cut(self, work: Workspace) -> tuple[str, ...]:
        """The inputs that the tactic sharded, with their shardings."""
        nodes, before = work.graph.input_nodes, self._specs
        self._specs = [work.state.sharding_at(n, n.outs[0]) for n in nodes]
        rows = zip(work.paths, self._specs, before or (None,) * len(nodes), strict=True)
        return tuple(
            f"{path} {_user_sharding(spec, work.sub_axes)}"
            for path, spec, old in rows
            if spec != old and not spec.is_whole
        )


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
    lines: dict[str, None] = {}
    for op, node in decided.work.graph.op_node.items():
        has_dims = any(a.shape for a in (*op.operands, *op.results))
        if node.rule is not None and node.rule.opaque and has_dims:
            lines.setdefault(f"{op.kind} ({op.source}): {node.rule.opaque}")
    return tuple(lines)
