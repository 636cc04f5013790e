"""The lowering of one program body: the per-device value and sharding of each value."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from meshwright.errors import ShardingError
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
    """The state that the lowerings of all bodies of one program share."""

    def __init__(self, state: State, gather: Gather) -> None:
        self.state = state
        self.graph = state.graph
        self.gather = gather
        self.partial_sums = PartialSums(state)
        self.origins: dict[Op, Origin] = {}
        self.stored: dict[Value, Sharding] = {}
        self.lowered_from: dict[Op, Op] = {}
        self._ends: dict[object, Ends] = {}

    def ends_of(self, node: Node) -> Ends:
        """The shardings of an op's operands and results; cached for equal rules."""
        axes = self.state.axes_of[node.index]
        key = (node.signature, tuple(sorted(axes.items())) if axes else None)
        if key not in self._ends:
            try:
                self._ends[key] = self._find_ends(node)
            except ShardingError as error:
                where = f"{node.label} at {node.source}" if node.source else node.label
                raise ShardingError(f"{where}: {error}") from error
        return self._ends[key]

    def _find_ends(self, node: Node) -> Ends:
        assert node.op is not None
        assert node.rule is not None
        axes = self.state.axes_of[node.index]
        results = tuple(cut_by(axes, dims) for dims in node.rule.results)
        shapes = (
            local_shape(value.shape, sharding, self.state.mesh)
            for value, sharding in zip(node.op.results, results, strict=True)
        )
        operands = tuple(cut_by(axes, dims) for dims in node.rule.operands)
        return Ends(operands, results, tuple(shapes))

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
            origin = Origin(node.index, number, step.axes, is_read=True)
            local = self.tracked(
                origin, lambda s=step, x=local: emit_step(self.builder, x, s)
            )
        is_kept = self.shared.gather is Gather.SHARED and form == need.dims
        if is_kept or not moves:
            self._cache[atom, need] = local
        else:
            self._gathered.add((atom, need))
        return local

    def settle(self, value: Value, node: Node) -> None:
        """Reduce a value along its partial axes, unless `PartialSums` delays that.

        A value that nothing reads is left as it is.
        """
        local, have = self.have[value]
        number = self.graph.number[value]
        is_sum = have.monoid == "sum"
        partial_sums = self.shared.partial_sums
        kept = tuple(
            a for a in have.partial if is_sum and partial_sums.is_passed_on(number, a)
        )
        rest = [a for a in have.partial if a not in kept]
        if not rest or not self._is_read(value):
            return
        builder, scattered = self.builder, self.state.scattered
        builder.reason = f"the {have.monoid} that {node.label} leaves open"

        def write(axes: tuple[str, ...], emit: Callable[[], Atom]) -> Atom:
            return self.tracked(Origin(node.index, number, axes, is_read=False), emit)

        def all_reduce(x: Atom, axes: tuple[str, ...]) -> Atom:
            return write(axes, lambda: builder.all_reduce(x, axes, have.monoid))

        for axis in self.mesh.sequential:
            # Devices reduce only once, after the loop in time.
            if axis in rest and (number, axis) not in scattered:
                rest.remove(axis)
                local = all_reduce(local, (axis,))
        # No collective reduce-scatters a max: it is all-reduced, then sliced.
        dims = self._scattered_dims(number, have, rest) if is_sum else list(have.dims)
        for dim, (old, new) in enumerate(zip(have.dims, dims, strict=True)):
            run = new[len(old) :]
            if run:
                local = write(
                    run, lambda x=local, d=dim, r=run: builder.reduce_scatter(x, d, r)
                )
        if rest and is_sum:
            local = all_reduce_by_levels(
                builder, local, tuple(rest), self.state.levels, write
            )
        elif rest:
            local = all_reduce(local, tuple(rest))
        self.have[value] = (local, Sharding(tuple(dims), kept))

    def _scattered_dims(
        self, value: int, have: Sharding, rest: list[str]
    ) -> list[tuple[str, ...]]:
        """The dims of a sum after reduce-scatters, whose axes are removed from `rest`.

        It is reduce-scattered where that is settled or all consumers want it, in the
        order in which the first consumer reads the axes.
        """
        dims = list(have.dims)
        state = self.state
        readers = [self.graph.nodes[index] for index in self.graph.consumers[value]]
        reads = [sharding for node in readers for sharding in state.reads(node, value)]
        settled = [a for a in rest if (value, a) in state.settled]
        wanted = [a for cut in reads[0].dims for a in cut] if reads else []
        for axis in (*settled, *wanted):
            dim = state.scattered.get((value, axis)) if axis in rest else None
            is_wanted = axis in settled or {s.dim_of(axis) for s in reads} == {dim}
            if dim is not None and is_wanted:
                dims[dim] = (*dims[dim], axis)
                rest.remove(axis)
        return dims

    def as_partial(self, local: Atom, axes: tuple[str, ...]) -> Atom:
        """A complete value as a partial sum: itself on the first device, zero elsewhere."""
        builder = self.builder
        first = builder.compare("eq", builder.axis_index(axes), 0)
        return builder.select(first, builder.full(local.shape, 0, local.dtype), local)

    def only_read(
        self, op: Op, write: Callable[[], tuple[Value, ...]]
    ) -> tuple[Value, ...]:
        """The local results of `write`, without ops for results that nothing reads.

        So the indices of an `argsort` move no sorted values.
        """
        before, made = len(self.builder.ops), write()
        pairs = zip(op.results, made, strict=True)
        live: set[Atom] = {local for value, local in pairs if self._is_read(value)}
        if not live or len(live) == len(made):
            return made
        for i in reversed(range(before, len(self.builder.ops))):
            if live.isdisjoint(self.builder.ops[i].results):
                del self.builder.ops[i]
            else:
                live.update(self.builder.ops[i].operands)
        return made

    def _is_read(self, value: Value) -> bool:
        """Whether an op reads a global value, or the body returns it."""
        is_used = self.graph.consumers[self.graph.number[value]]
        return bool(is_used) or value in self.source.outputs

    def tracked[T](self, origin: Origin, write: Callable[[], T]) -> T:
        """Call `write`, and record `origin` as the reason for its collectives."""
        before = len(self.builder.ops)
        result = write()
        for op in self.builder.ops[before:]:
            if op.kind in COLLECTIVES:
                self.shared.origins[op] = origin
        return result
