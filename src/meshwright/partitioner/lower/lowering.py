"""Lowering: from a program and its shardings to a device program with collectives.

For each operand, *need* is the sharding that the op's own sharding implies, and *have*
the one in which the operand is stored; `reshard` chooses the collectives between them.
`Scope.read` (`scope.py`) writes them: with `Gather.SHARED` it keeps what it gathered,
with `Gather.AT_USE` it gathers at each use, behind a barrier. A partial sum is reduced
where `PartialSums` says that it must be: by a reduce-scatter if all consumers want the
same dim sharded, otherwise by an all-reduce.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from meshwright.partitioner.lower.combined import combine_collectives
from meshwright.partitioner.lower.lowered import (
    Gather,
    Lowered,
    Origin,
    Workaround,
    work_around,
)
from meshwright.partitioner.lower.overlap import overlap_products
from meshwright.partitioner.lower.reshard import local_shape
from meshwright.partitioner.lower.scope import Scope, Shared
from meshwright.partitioner.lower.time_loops import run_in_time
from meshwright.partitioner.propagate import Node, State
from meshwright.partitioner.propagate.state import cut_by
from meshwright.program.ir import Atom, Literal, Op, Program, Sharding, Value
from meshwright.program.ops import OpCut
from meshwright.program.rewrite.gather_ahead import gather_ahead
from meshwright.program.rewrite.recomputation import wait_for_cotangents


def lower(
    state: State,
    gather: Gather = Gather.SHARED,
    workarounds: Sequence[Workaround] = (),
) -> Lowered:
    """The device program for the sharding decisions of a state.

    workarounds: rewrites that the later compiler needs, such as
        `predict.compilers.xla.workarounds.XLA_WORKAROUNDS`; applied in order.
    """
    lowered = run_in_time(lower_unrolled(state, gather))
    lowered = combine_collectives(lowered, state.combined)
    program = wait_for_cotangents(lowered.program)
    return replace(lowered, program=work_around(program, workarounds))


def lower_unrolled(state: State, gather: Gather = Gather.SHARED) -> Lowered:
    """The device program in which a sequential axis is still an axis of devices."""
    graph = state.graph
    shared = Shared(state, gather)
    inputs = tuple(state.sharding_at(n, n.outs[0]) for n in graph.input_nodes)
    given = dict(zip(graph.program.inputs, inputs, strict=True))
    scope = Scope(shared, graph.program, given)
    _lower_ops(scope)
    needs = {out: inputs[position] for out, position in graph.ties.items()}
    what = "an output that must be stored as the input it replaces"
    outputs = [
        _store_output(scope, atom, needs.get(i), what)
        for i, atom in enumerate(graph.program.outputs)
    ]
    program = scope.finish(tuple(atom for atom, _ in outputs))
    if state.overlapped:
        program = overlap_products(
            program,
            state.mesh,
            shared.origins,
            lambda op: _is_marked(op, state.overlapped, shared.origins),
        )
    if state.ahead:
        program = _gathered_ahead(program, state, shared.origins)
    return Lowered(
        program,
        state.mesh,
        inputs,
        outputs=tuple(sharding for _, sharding in outputs),
        origins=shared.origins,
        stored=shared.stored,
        lowered_from=shared.lowered_from,
    )


def _gathered_ahead(
    program: Program, state: State, origins: dict[Op, Origin]
) -> Program:
    """The program with the marked gathers one iteration ahead; updates `origins`."""
    program, copies = gather_ahead(
        program, state.mesh, lambda op: _is_marked(op, state.ahead, origins)
    )
    for made, op in copies.items():
        origins[made] = replace(origins[op], is_ahead=True)
    for op in set(copies.values()).difference(program.walk()):
        del origins[op]
    return program


def _is_marked(
    op: Op, marked: Collection[object], origins: Mapping[Op, Origin]
) -> bool:
    origin = origins.get(op)
    return origin is not None and (origin.node, op.params["axes"]) in marked


def _store_output(
    scope: Scope, atom: Atom, need: Sharding | None, what: str
) -> tuple[Atom, Sharding]:
    """An output's local value and its sharding, which is `need` if that is given."""
    if isinstance(atom, Literal):
        return atom, Sharding(())
    if need is None:
        return scope.have[atom]
    node, start = scope.node_of(atom), len(scope.builder.ops)
    local = scope.read(atom, need, node, what)
    if node.op is not None:
        scope.note_written(start, node.op)
    return local, need


def _lower_ops(scope: Scope) -> None:
    for op in scope.source.ops:
        start = len(scope.builder.ops)
        (_lower_region if op.bodies else _lower_op)(scope, op)
        scope.note_written(start, op)


# -- ops ------------------------------------------------------------------------------


def _lower_op(scope: Scope, op: Op) -> None:
    """Reshard the operands, write the local part of the op, and reduce its results."""
    node = scope.graph.op_node[op]
    rule = node.rule
    assert rule is not None
    ends = scope.shared.ends_of(node)
    needs = zip(op.operands, ends.operands, strict=True)
    operands = tuple(
        [scope.read(atom, need, node, i) for i, (atom, need) in enumerate(needs)]
    )
    have = scope.have
    values = [atom for atom in op.operands if isinstance(atom, Value)]
    read_partial = {axis for value in values for axis in have[value][1].partial}
    scope.builder.source = op.source
    if read_partial:
        operands = _as_addends(scope, op, operands, read_partial)
    results = _apply(scope, op, operands, ends.shapes)
    factor_of = scope.state.factor_of[node.index]
    left = {axis for axis, factor in factor_of.items() if factor in rule.reductions}
    partial = tuple([a for a in scope.mesh.axes if a in read_partial or a in left])
    monoid = "sum" if read_partial else rule.monoid
    for value, local, sharding in zip(op.results, results, ends.results, strict=True):
        if partial:
            have[value] = (local, Sharding(sharding.dims, partial, monoid))
            scope.settle(value, node)
        else:
            have[value] = (local, sharding)


def _apply(
    scope: Scope,
    op: Op,
    operands: tuple[Atom, ...],
    shapes: tuple[tuple[int, ...], ...],
) -> tuple[Value, ...]:
    """The local results of an op, by the same primitive or its rule's lowering."""
    node = scope.graph.op_node[op]
    rule = node.rule
    assert rule is not None
    axes_of = scope.state.axes_of[node.index]
    expand = rule.expand
    needs_exchange = any(axes_of.get(f) for f in rule.special)
    if expand is None or not (needs_exchange or rule.is_composite):
        params = op.params
        if op.has_effect:
            params = {**params, "mesh_axes": scope.mesh.axes}
        if rule.local_params is not None and axes_of:
            params = rule.local_params(op, tuple(o.shape for o in operands), shapes)
        return scope.builder.apply(op, operands, shapes, params)
    every = range(len(rule.sizes))
    cut = OpCut(
        tuple(axes_of.get(f, ()) for f in every),
        tuple(scope.state.parts(node, f) for f in every),
    )
    scope.builder.reason = f"{op.kind} cut where it needs elements of other devices"
    value = node.outs[0][0] if node.outs else -1
    axes = tuple(scope.state.factor_of[node.index])
    return scope.tracked(
        Origin(node.index, value, axes, is_read=True),
        lambda: scope.only_read(op, lambda: expand(scope.builder, op, operands, cut)),
    )


def _as_addends(
    scope: Scope, op: Op, operands: tuple[Atom, ...], axes: Collection[str]
) -> tuple[Atom, ...]:
    """The operands of a sum that stays partial, with complete addends made partial.

    axes: mesh axes along which some operand is partial.
    """
    node = scope.graph.op_node[op]
    addends = list(operands)
    for axis in sorted(axes):
        for i in scope.shared.partial_sums.addends(node, axis):
            addends[i] = _as_addend(scope, op.operands[i], addends[i], (axis,))
    return tuple(addends)


# -- regions --------------------------------------------------------------------------


def _lower_region(scope: Scope, op: Op) -> None:
    """Lower a loop, branch or remat; an array has one sharding in and outside."""
    operands: list[Atom] = list(op.operands)
    inputs: list[dict[int, Sharding]] = [{} for _ in op.bodies]
    outputs: list[dict[int, Sharding]] = [{} for _ in op.bodies]
    results: dict[int, Sharding] = {}
    for node, wire in zip(scope.graph.wire_nodes[op], op.wires, strict=True):
        inner = _wire_sharding(scope, node)
        outer = inner
        if wire.is_stacked:
            outer = Sharding(((), *inner.dims), inner.partial)
        if wire.operand is not None:
            atom, what = op.operands[wire.operand], f"an operand of {node.label}"
            local = scope.read(atom, Sharding(outer.dims), node, what)
            operands[wire.operand] = _as_addend(scope, atom, local, outer.partial)
        for body, i in wire.inputs:
            inputs[body][i] = inner
        for body, i in wire.outputs:
            outputs[body][i] = inner
        if wire.result is not None:
            results[wire.result] = outer
    bodies = tuple(
        _lower_body(scope.shared, op, body, inputs[k], outputs[k])
        for k, body in enumerate(op.bodies)
    )
    locals_ = tuple(
        Value(local_shape(r.shape, results[i], scope.mesh), r.dtype)
        for i, r in enumerate(op.results)
    )
    scope.builder.ops.append(
        replace(op, operands=tuple(operands), results=locals_, bodies=bodies)
    )
    for i, (value, local) in enumerate(zip(op.results, locals_, strict=True)):
        scope.have[value] = (local, results[i])
        if results[i].partial:
            scope.settle(value, scope.node_of(value))


def _wire_sharding(scope: Scope, node: Node) -> Sharding:
    """Sharding of an array in a loop or branch, and axes along which it is partial.

    A loop-invariant value may be gathered before the loop, a remat's operand inside.
    """
    if scope.shared.gather is Gather.SHARED and (
        node.is_loop_constant or (node.is_remat_constant and _is_gathered(scope, node))
    ):
        return Sharding(scope.shared.form_inside(node))
    dims = tuple((d,) for d in range(len(node.sizes)))
    inner = cut_by(scope.state.axes_of[node.index], dims)
    partial_sums = scope.shared.partial_sums
    partial = tuple(
        a
        for a in scope.mesh.axes
        if partial_sums.loop_partial(node, a) or partial_sums.leaves_partial(node, a)
    )
    return Sharding(inner.dims, partial)


def _is_gathered(scope: Scope, node: Node) -> bool:
    """Whether a remat body receives its operand in the sharding it is stored in."""
    operand = scope.graph.values[node.ins[0][0]]
    return scope.have[operand][1].dims == scope.shared.form_inside(node)


def _as_addend(scope: Scope, atom: Atom, local: Atom, axes: tuple[str, ...]) -> Atom:
    """The local value as a partial sum along all of `axes`, as it may be already."""
    have = scope.have[atom][1].partial if isinstance(atom, Value) else ()
    missing = tuple(a for a in axes if a not in have)
    if not missing or scope.shared.partial_sums.routes.is_zero(atom):
        return local
    return scope.as_partial(local, missing)


def _lower_body(
    shared: Shared,
    op: Op,
    body: Program,
    inputs: dict[int, Sharding],
    needs: dict[int, Sharding],
) -> Program:
    scope = Scope(shared, body, {v: inputs[i] for i, v in enumerate(body.inputs)})
    _lower_ops(scope)
    what = f"a value that {op.kind} hands on must be stored alike"
    outputs: list[Atom] = []
    for i, atom in enumerate(body.outputs):
        local, _ = _store_output(scope, atom, needs[i], what)
        have = scope.have[atom][1].partial if isinstance(atom, Value) else ()
        assert set(have) <= set(needs[i].partial), f"a partial sum leaves {op.kind}"
        outputs.append(_as_addend(scope, atom, local, needs[i].partial))
    return scope.finish(tuple(outputs))
