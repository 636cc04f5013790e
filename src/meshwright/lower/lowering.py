"""Program + State -> device program: local shapes, and every collective written down.

For each op, *need* is what its factors want of an operand, *have* how the operand is
stored; the difference is written as collectives. A partial sum is reduced where
`Carrier` says that it may not travel on: as a reduce-scatter where all readers want the
same dim cut, else as an all-reduce.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from meshwright.ir import Atom, Literal, Op, Program, Sharding, Value
from meshwright.lower.reshard import emit_step, local_shape, reshard_steps
from meshwright.machine import Mesh
from meshwright.propagate import Carrier, Node, State
from meshwright.rules import COLLECTIVES, Builder, Cut


class Gather(Enum):
    """How often a value that several ops need whole is gathered."""

    AT_USE = "at_use"  # anew for each op, so that it need not be kept (PartIR)
    SHARED = "shared"  # once, then kept


@dataclass(frozen=True, slots=True)
class Origin:
    """Why a collective is there: the node that reads or makes the value, and the value.

    value: its number in the graph. axes: those that move. is_read: the collective
    prepares an operand of the node; otherwise it completes a result.
    """

    node: int
    value: int
    axes: tuple[str, ...]
    is_read: bool


@dataclass(frozen=True, eq=False)
class Lowered:
    """A device program, with the shardings of its inputs and outputs.

    origins: by collective op of the program, nested ones included.
    """

    program: Program
    mesh: Mesh
    inputs: tuple[Sharding, ...]
    outputs: tuple[Sharding, ...]
    origins: Mapping[Op, Origin] = field(default_factory=dict)


def lower(state: State, gather: Gather = Gather.SHARED) -> Lowered:
    """The device program of a state's decisions."""
    graph = state.graph
    lowering = _Lowering(state, gather)
    inputs = tuple(state.sharding_at(n, n.outs[0]) for n in graph.input_nodes)
    needs = [
        inputs[graph.ties[i]] if i in graph.ties else None
        for i in range(len(graph.program.outputs))
    ]
    scope = _Scope(
        lowering, graph.program, dict(zip(graph.program.inputs, inputs, strict=True))
    )
    outputs = [scope.output(i, need) for i, need in enumerate(needs)]
    program = scope.finish(tuple(atom for atom, _ in outputs))
    return Lowered(
        program, state.mesh, inputs, tuple(s for _, s in outputs), lowering.origins
    )


class _Lowering:
    """What all scopes of one lowering share."""

    def __init__(self, state: State, gather: Gather) -> None:
        self.state = state
        self.graph = state.graph
        self.mesh = state.mesh
        self.gather = gather
        self.carrier = Carrier(state)
        self.origins: dict[Op, Origin] = {}
        self.needs = _collect_needs(state)


def _collect_needs(state: State) -> dict[tuple[int, str], set[int | None]]:
    """For scattered values: on which dim each reader wants the axis, None for whole."""
    needs: dict[tuple[int, str], set[int | None]] = {}
    for value, axis in state.scattered:
        wanted: set[int | None] = set()
        for index in state.graph.consumers[value]:
            node = state.graph.nodes[index]
            for port in node.ins:
                if port[0] == value:
                    wanted.add(state.sharding_at(node, port).dim_of(axis))
        needs[value, axis] = wanted
    return needs


class _Scope:
    """One body under way: where each global value is, and how it is stored."""

    def __init__(
        self, lowering: _Lowering, program: Program, inputs: Mapping[Value, Sharding]
    ):
        self.shared = lowering
        self.state = lowering.state
        self.graph = lowering.graph
        self.mesh = lowering.mesh
        self.builder = Builder(lowering.mesh)
        self.source = program
        self.have: dict[Value, tuple[Atom, Sharding]] = {}
        self.cache: dict[tuple[Value, Sharding], Atom] = {}
        self.gathered: set[tuple[Value, Sharding]] = set()
        self.inputs: list[Value] = []
        for value, sharding in inputs.items():
            local = Value(local_shape(value.shape, sharding, self.mesh), value.dtype)
            self.inputs.append(local)
            self.have[value] = (local, sharding)
        self.constants = {}
        for value, array in program.constants.items():
            self._constant(value, array)
        for op in program.ops:
            self.region(op) if op.bodies else self.op(op)

    def finish(self, outputs: tuple[Atom, ...]) -> Program:
        return Program(
            tuple(self.inputs), tuple(self.builder.ops), outputs, self.constants
        )

    def output(self, index: int, need: Sharding | None) -> tuple[Atom, Sharding]:
        """The stored form of one output, as needed, or as it comes."""
        atom = self.source.outputs[index]
        if isinstance(atom, Literal):
            return atom, Sharding(())
        node = self.graph.nodes[self.graph.producer[self.graph.number[atom]]]
        if need is None:
            return self.have[atom]
        self.builder.reason = "an output that must be stored as the input it replaces"
        return self.read(atom, need, node), need

    def _constant(self, value: Value, array: object) -> None:
        whole = Value(value.shape, value.dtype)
        self.constants[whole] = array
        node = self.graph.nodes[self.graph.producer[self.graph.number[value]]]
        need = self.state.sharding_at(node, node.outs[0])
        local: Atom = whole
        for step in reshard_steps(Sharding(((),) * len(value.shape)), need):
            local = emit_step(self.builder, local, step)
        self.have[value] = (local, need)

    # -- ops ------------------------------------------------------------------------

    def op(self, op: Op) -> None:
        """Lower one op: bring operands, apply its part, settle its results."""
        node = self.graph.op_node[op]
        rule, state = node.rule, self.state
        assert rule is not None
        operands = tuple(
            self.read(atom, Sharding(self._dims(node, dims)), node, position)
            for position, (atom, dims) in enumerate(
                zip(op.operands, rule.operands, strict=True)
            )
        )
        shardings = [Sharding(self._dims(node, dims)) for dims in rule.results]
        shapes = tuple(
            local_shape(r.shape, s, self.mesh)
            for r, s in zip(op.results, shardings, strict=True)
        )
        self.builder.source = op.source
        carried = self._carried_axes(op, node)
        if carried:
            operands = self._level(op, node, operands, carried)
        cuts = state.axes_of[node.index]
        if rule.special and any(cuts.get(f) for f in rule.special):
            cut = Cut(
                tuple(cuts.get(f, ()) for f in range(len(rule.sizes))),
                tuple(state.parts(node, f) for f in range(len(rule.sizes))),
            )
            expand = rule.expand
            assert expand is not None
            self.builder.reason = f"{op.kind} cut where it needs its neighbours"
            locals_ = self._tracked(
                node, lambda: expand(self.builder, op, operands, cut)
            )
        else:
            params = op.params
            if op.has_effect:
                params = {**op.params, "mesh_axes": self.mesh.axes}
            if rule.local_params is not None and cuts:
                params = rule.local_params(op, tuple(o.shape for o in operands), shapes)
            locals_ = self.builder.apply(op, operands, shapes, params)
        for result, local, sharding in zip(op.results, locals_, shardings, strict=True):
            number = self.graph.number[result]
            partial = tuple(
                a for a in self.mesh.axes
                if a in carried or (a in state.factor_of[node.index]
                                    and state.factor_of[node.index][a] in rule.reductions)
            )  # fmt: skip
            if partial:
                monoid = "sum" if carried else rule.monoid
                sharding = Sharding(sharding.dims, partial, monoid)
            self.have[result] = (local, sharding)
            if partial:
                self.settle(result, number, node)

    def _dims(
        self, node: Node, dims: tuple[tuple[int, ...], ...]
    ) -> tuple[tuple[str, ...], ...]:
        cuts = self.state.axes_of[node.index]
        if not cuts:
            return ((),) * len(dims)
        return tuple(tuple(a for f in fs for a in cuts.get(f, ())) for fs in dims)

    def _carried_axes(self, op: Op, node: Node) -> set[str]:
        """Axes along which some operand stays partial, for the result to be so too."""
        axes: set[str] = set()
        for atom in op.operands:
            if isinstance(atom, Value):
                axes.update(self.have[atom][1].partial)
        return axes

    def _level(
        self, op: Op, node: Node, operands: tuple[Atom, ...], axes: set[str]
    ) -> tuple[Atom, ...]:
        """Whole addends of a sum that is carried on partial count on one device only."""
        level = list(operands)
        for axis in sorted(axes):
            for position in self.shared.carrier.addends(node, axis):
                atom = op.operands[position]
                have = self.have[atom][1].partial if isinstance(atom, Value) else ()
                if axis not in have and not self.shared.carrier.is_zero(atom):
                    level[position] = self._as_partial(level[position], (axis,))
        return tuple(level)

    def _as_partial(self, local: Atom, axes: tuple[str, ...]) -> Atom:
        """A whole value on the first device along `axes`, zero on the others."""
        builder = self.builder
        first = builder.compare("eq", builder.axis_index(axes), 0)
        return builder.select(first, builder.full(local.shape, 0, local.dtype), local)

    def settle(self, value: Value, number: int, node: Node) -> None:
        """Reduce a partial value along the axes that it may not carry on."""
        local, have = self.have[value]
        carrier = self.shared.carrier
        kept = tuple(
            a
            for a in have.partial
            if have.monoid == "sum" and carrier.can_carry(number, a)
        )
        axes = tuple(a for a in have.partial if a not in kept)
        if not axes:
            return
        self.builder.reason = (
            f"the {have.monoid} over {', '.join(axes)} that {node.label} leaves open"
        )
        dims = [list(d) for d in have.dims]
        rest: list[str] = []
        scatters: dict[int, list[str]] = {}
        for axis in axes:
            dim = self.state.scattered.get((number, axis))
            if have.monoid != "sum":
                dim = None  # nothing scatters a max: reduce, and let readers slice
            if dim is not None and self.shared.needs[number, axis] == {dim}:
                scatters.setdefault(dim, []).append(axis)
                dims[dim].append(axis)
            else:
                rest.append(axis)
        for dim, run in sorted(scatters.items()):
            local = self._track(
                node, number, tuple(run), False,
                lambda d=dim, r=run, x=local: self.builder.reduce_scatter(x, d, tuple(r)),
            )  # fmt: skip
        if rest:
            local = self._track(
                node, number, tuple(rest), False,
                lambda x=local: self.builder.all_reduce(x, tuple(rest), have.monoid),
            )  # fmt: skip
        self.have[value] = (local, Sharding(tuple(map(tuple, dims)), kept))

    def read(
        self, atom: Atom, need: Sharding, node: Node, position: int | None = None
    ) -> Atom:
        """A value as a node needs it; partial sums that were carried stay partial."""
        if isinstance(atom, Literal):
            return atom
        local, have = self.have[atom]
        if have.dims == need.dims:
            return local
        need = Sharding(need.dims, have.partial, have.monoid)
        known = self.cache.get((atom, need))
        if known is not None:
            return known
        self.builder.source = node.source
        if position is not None:
            self.builder.reason = f"operand {position} of {node.label}"
        number = self.graph.number[atom]
        moves = False
        if (atom, need) in self.gathered:
            local = self.builder.fence(local)
        for step in reshard_steps(have.without_partial(), need.without_partial()):
            moves = moves or step.kind != "all_slice"
            local = self._track(
                node, number, step.axes, True,
                lambda s=step, x=local: emit_step(self.builder, x, s),
            )  # fmt: skip
        if self.shared.gather is Gather.SHARED or not moves:
            self.cache[atom, need] = local
        else:
            self.gathered.add((atom, need))
        return local

    def _track(
        self, node: Node, number: int, axes: tuple[str, ...], is_read: bool, write
    ):
        before = len(self.builder.ops)
        result = write()
        for op in self.builder.ops[before:]:
            if op.kind in COLLECTIVES:
                self.shared.origins[op] = Origin(node.index, number, axes, is_read)
        return result

    def _tracked(self, node: Node, write):
        value = node.outs[0][0] if node.outs else -1
        axes = tuple(self.state.factor_of[node.index])
        return self._track(node, value, axes, True, write)

    # -- regions --------------------------------------------------------------------

    def region(self, op: Op) -> None:
        """Lower a loop, branch or remat: its wires say how all ends are stored."""
        nodes = self.graph.wire_nodes[op]
        operands: list[Atom] = list(op.operands)
        body_inputs: list[dict[int, Sharding]] = [{} for _ in op.bodies]
        body_outputs: list[dict[int, Sharding]] = [{} for _ in op.bodies]
        results: dict[int, Sharding] = {}
        for node, wire in zip(nodes, op.wires, strict=True):
            inner = Sharding(
                self._dims(node, tuple((d,) for d in range(len(node.sizes))))
            )
            partial = self._loop_axes(node)
            inner = Sharding(inner.dims, partial)
            outer = Sharding(((), *inner.dims)) if wire.is_stacked else inner
            if wire.operand is not None:
                operands[wire.operand] = self._operand(
                    op.operands[wire.operand], outer, node
                )
            for body, i in wire.inputs:
                body_inputs[body][i] = inner
            for body, i in wire.outputs:
                body_outputs[body][i] = inner
            if wire.result is not None:
                results[wire.result] = outer
        bodies = tuple(
            self._body(op, body, body_inputs[k], body_outputs[k])
            for k, body in enumerate(op.bodies)
        )
        locals_ = tuple(
            Value(local_shape(r.shape, results[i], self.mesh), r.dtype)
            for i, r in enumerate(op.results)
        )
        self.builder.ops.append(
            replace(op, operands=tuple(operands), results=locals_, bodies=bodies)
        )
        for i, (result, local) in enumerate(zip(op.results, locals_, strict=True)):
            self.have[result] = (local, results[i])
            if results[i].partial:
                number = self.graph.number[result]
                self.settle(
                    result, number, self.graph.nodes[self.graph.producer[number]]
                )

    def _body(self, op: Op, body: Program, inputs: Mapping[int, Sharding],
              needs: Mapping[int, Sharding]) -> Program:  # fmt: skip
        given = {value: inputs[i] for i, value in enumerate(body.inputs)}
        scope = _Scope(self.shared, body, given)
        outputs = []
        for i in range(len(body.outputs)):
            need = needs[i]
            scope.builder.reason = (
                f"a value that {op.kind} hands on must be stored alike"
            )
            outputs.append(scope.output(i, need)[0])
        return scope.finish(tuple(outputs))

    def _loop_axes(self, node: Node) -> tuple[str, ...]:
        carrier = self.shared.carrier
        return tuple(a for a in self.mesh.axes if carrier.loop_partial(node, a))

    def _operand(self, atom: Atom, need: Sharding, node: Node) -> Atom:
        """A region's operand; a whole one that starts a partial carry counts once."""
        self.builder.reason = f"an operand of {node.label}"
        local = self.read(atom, Sharding(need.dims), node)
        have = self.have[atom][1].partial if isinstance(atom, Value) else ()
        missing = tuple(a for a in need.partial if a not in have)
        if not missing or self.shared.carrier.is_zero(atom):
            return local
        return self._as_partial(local, missing)
