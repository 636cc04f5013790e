"""The lowering of one program body: the per-device value and sharding of each value."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from meshwright.partitioner.lower.by_levels import all_reduce_by_levels
from meshwright.partitioner.lower.lowered import Gather, Origin
from meshwright.partitioner.lower.reshard import emit_step, local_shape, reshard_steps
from meshwright.partitioner.lower.scalar_reductions import combine_scalar_reductions
from meshwright.partitioner.propagate import Node, PartialSums, State
from meshwright.partitioner.propagate.state import cut_by
from meshwright.program.ir import Atom, Literal, Op, Program, Sharding, Value, whole
from meshwright.program.ops import COLLECTIVES, Builder

Cuts = tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Ends:
    """The shardings in which an op reads its operands and computes its results.

    shapes: the local shapes of the results.
    """

    operands: tuple[Sharding, ...]
    results: tuple[Sharding, ...]
    shapes: tuple[tuple[int, ...], ...]


class Shared:
    """The state that the lowerings of all bodies of one program share.

    needs: for each reduce-scattered (value, axis) the dims that consumers want sharded
        along the axis; `None` stands for a consumer that wants the value unsharded.
    """

    def __init__(self, state: State, gather: Gather) -> None:
        self.state = state
        self.graph = state.graph
        self.gather = gather
        self.partial_sums = PartialSums(state)
        self.origins: dict[Op, Origin] = {}
        self.stored: dict[Value, Sharding] = {}
        self.lowered_from: dict[Op, Op] = {}
        self.needs = _collect_needs(state)
        self._ends: dict[object, Ends] = {}

    def ends_of(self, node: Node) -> Ends:
        """The shardings of an op's operands and results; cached for equal rules."""
        axes = self.state.axes_of[node.index]
        key = (node.signature, tuple(sorted(axes.items())) if axes else None)
        if key not in self._ends:
            assert node.op is not None
            assert node.rule is not None
            results = tuple(cut_by(axes, dims) for dims in node.rule.results)
            shapes = (
                local_shape(value.shape, sharding, self.state.mesh)
                for value, sharding in zip(node.op.results, results, strict=True)
            )
            operands = tuple(cut_by(axes, dims) for dims in node.rule.operands)
            self._ends[key] = Ends(operands, results, tuple(shapes))
        return self._ends[key]

    def form_inside(self, node: Node) -> Cuts:
        """The sharding, by dims, in which a loop or remat body receives a constant.

        It is the stored sharding, unless all consumers want one sharding with fewer
        axes: then the value is gathered once before the loop, not in each iteration.
        """
        state, graph = self.state, self.graph
        stored = state.sharding_at(node, node.outs[0]).dims
        wanted: set[Cuts] = set()
        for number, _ in node.outs:
            if number in state.kept:
                wanted.add(state.kept[number])
                continue
            for reader in (graph.nodes[index] for index in graph.consumers[number]):
                if reader.is_loop_constant or reader.is_remat_constant:
                    wanted.add(self.form_inside(reader))
                    continue
                wanted |= {s.dims for s in state.reads(reader, number)}
        form = wanted.pop() if len(wanted) == 1 else stored
        return stored if _is_within(form, stored) else form


def _is_within(need: Cuts, form: Cuts) -> bool:
    """Whether a value sharded as `form` can be sliced to `need`, no collective."""
    return all(n[: len(f)] == f for n, f in zip(need, form, strict=True))


def _collect_needs(state: State) -> dict[tuple[int, str], set[int | None]]:
    needs: dict[tuple[int, str], set[int | None]] = {}
    for value, axis in state.scattered:
        readers = [state.graph.nodes[index] for index in state.graph.consumers[value]]
        needs[value, axis] = {
            sharding.dim_of(axis) for n in readers for sharding in state.reads(n, value)
        }
    return needs


class Scope:
    """The device program of one body while it is written.

    have: for each global value, the local value and its sharding.
    inputs: the body's global inputs, with their shardings.
    """

    def __init__(
        self, shared: Shared, source: Program, inputs: Mapping[Value, Sharding]
    ):
        self.shared = shared
        self.state = shared.state
        self.graph = shared.state.graph
        self.mesh = shared.state.mesh
        self.builder = Builder(self.mesh)
        self.source = source
        self.have: dict[Value, tuple[Atom, Sharding]] = {}
        self._cache: dict[tuple[Value, Sharding], Atom] = {}
        self._gathered: set[tuple[Value, Sharding]] = set()
        self._inputs: list[Value] = []
        self._constants: dict[Value, object] = {}
        for value, sharding in inputs.items():
            local = Value(local_shape(value.shape, sharding, self.mesh), value.dtype)
            self._inputs.append(local)
            self.have[value] = (local, sharding)
        for value, array in source.constants.items():
            self._add_constant(value, array)

    def finish(self, outputs: tuple[Atom, ...]) -> Program:
        """The finished device program of the body, with the given local outputs."""
        self.shared.stored.update((v, s) for v, (_, s) in self.have.items())
        ops = combine_scalar_reductions(
            self.builder.ops, self.mesh, self.shared.origins
        )
        return Program(tuple(self._inputs), ops, outputs, self._constants)

    def note_written(self, start: int, op: Op) -> None:
        """Record that the ops written since position `start` are lowered from `op`."""
        for each in self.builder.ops[start:]:
            self.shared.lowered_from[each] = op

    def node_of(self, value: Value) -> Node:
        """The node that produces a global value."""
        return self.graph.nodes[self.graph.producer[self.graph.number[value]]]

    def _add_constant(self, value: Value, array: object) -> None:
        local: Atom = Value(value.shape, value.dtype)
        self._constants[local] = array
        node = self.node_of(value)
        need = self.state.sharding_at(node, node.outs[0])
        for step in reshard_steps(whole(len(value.shape)), need):
            local = emit_step(self.builder, local, step)
        self.have[value] = (local, need)

    # -- bringing values into shape -------------------------------------------------

    def read(self, atom: Atom, need: Sharding, node: Node, what: str | int) -> Atom:
        """The per-device value in the sharding that a node needs; stays a partial sum.

        what: number of the node's operand, or a description of the value, for messages.
        """
        if isinstance(atom, Literal):
            return atom
        local, have = self.have[atom]
        if have.dims == need.dims:
            return local
        need = Sharding(need.dims, have.partial, have.monoid)
        known = self._cache.get((atom, need))
        if known is not None:
            return known
        number = self.graph.number[atom]
        form = self.state.kept.get(number, need.dims)
        if form not in (need.dims, have.dims) and _is_within(need.dims, form):
            whole_form = Sharding(form, have.partial, have.monoid)
            local, have = self.read(atom, whole_form, node, what), whole_form
        self.builder.source = node.source
        is_operand = isinstance(what, int)
        self.builder.reason = f"operand {what} of {node.label}" if is_operand else what
        if (atom, need) in self._gathered:
            local = self.builder.fence(local)
        moves = False
        for step in reshard_steps(have.without_partial(), need.without_partial()):
            moves = moves or step.kind != "all_slice"
            with_origin = Origin(node.index, number, step.axes, is_read=True)
            local = self.tracked(
                with_origin, lambda s=step, x=local: emit_step(self.builder, x, s)
            )
        is_kept = self.shared.gather is Gather.SHARED and form == need.dims
        if is_kept or not moves:
            self._cache[atom, need] = local
        else:
            self._gathered.add((atom, need))
        return local

    def settle(self, value: Value, node: Node) -> None:
        """Reduce a value along its partial axes, unless `PartialSums` delays that."""
        local, have = self.have[value]
        number = self.graph.number[value]
        is_sum = have.monoid == "sum"
        partial_sums = self.shared.partial_sums
        kept = tuple(
            a for a in have.partial if is_sum and partial_sums.is_passed_on(number, a)
        )
        axes = tuple(a for a in have.partial if a not in kept)
        if not axes:
            return
        self.builder.reason = f"the {have.monoid} that {node.label} leaves open"
        dims = list(have.dims)
        rest = list(axes)
        local = self._reduced_over_time(local, have.monoid, number, node, rest)
        axes = tuple(rest)
        settled = [a for a in axes if (number, a) in self.state.settled]
        for axis in (*settled, *self._as_read(number)) if is_sum else ():
            # No collective reduce-scatters a max: it is all-reduced, then sliced.
            dim = self.state.scattered.get((number, axis)) if axis in rest else None
            is_wanted = axis in settled or self.shared.needs.get((number, axis)) == {
                dim
            }
            if dim is not None and is_wanted:
                dims[dim] = (*dims[dim], axis)
                rest.remove(axis)
        for dim, (old, new) in enumerate(zip(have.dims, dims, strict=True)):
            run = new[len(old) :]
            if run:
                local = self.tracked(
                    Origin(node.index, number, run, is_read=False),
                    lambda x=local, d=dim, r=run: self.builder.reduce_scatter(x, d, r),
                )
        if rest and is_sum:
            local = all_reduce_by_levels(
                self.builder,
                local,
                tuple(rest),
                self.state.levels,
                lambda axes, write: self.tracked(
                    Origin(node.index, number, axes, is_read=False), write
                ),
            )
        elif rest:
            local = self.tracked(
                Origin(node.index, number, tuple(rest), is_read=False),
                lambda x=local: self.builder.all_reduce(x, tuple(rest), have.monoid),
            )
        self.have[value] = (local, Sharding(tuple(dims), kept))

    def _reduced_over_time(
        self, local: Atom, monoid: str, number: int, node: Node, rest: list[str]
    ) -> Atom:
        """A value reduced along the sequential axis, which is removed from `rest`.

        Devices then reduce only once, after the loop in time.
        """
        for axis in self.mesh.sequential:
            if axis in rest and (number, axis) not in self.state.scattered:
                rest.remove(axis)
                local = self.tracked(
                    Origin(node.index, number, (axis,), is_read=False),
                    lambda x=local, a=axis: self.builder.all_reduce(x, (a,), monoid),
                )
        return local

    def _as_read(self, value: int) -> list[str]:
        """The axes that shard a value as its first consumer reads it, in that order."""
        readers = self.graph.consumers[value]
        if not readers:
            return []
        first = next(self.state.reads(self.graph.nodes[readers[0]], value))
        return [axis for cut in first.dims for axis in cut]

    def as_partial(self, local: Atom, axes: tuple[str, ...]) -> Atom:
        """A complete value as a partial sum: itself on the first device, zero elsewhere."""
        builder = self.builder
        first = builder.compare("eq", builder.axis_index(axes), 0)
        return builder.select(first, builder.full(local.shape, 0, local.dtype), local)

    def tracked[T](self, origin: Origin, write: Callable[[], T]) -> T:
        """Call `write`, and record `origin` as the reason for its collectives."""
        before = len(self.builder.ops)
        result = write()
        for op in self.builder.ops[before:]:
            if op.kind in COLLECTIVES:
                self.shared.origins[op] = origin
        return result
