"""Sequential axes: parts of a device program that run once for each position in time.

The program is lowered as if the axis were one of devices. Then the ops that depend on the
position along it become the bodies of scans; `time_stages` says which op is in which.
What a scan hands on is

- a sum over the axis, added up in a carry,
- a value of each iteration, stacked, for a gather or for a later scan.

This is the temporal reading of PartIR's loops (Alabed et al., ASPLOS 2025): gradient
accumulation, if the axis cuts the batch.

    before, per position: %g = f(%w, %x);  %s = all_reduce(%g, micro);  %v = u(%w, %s)
    after: scan over micro { %g = f(%w, slice(%x)); %acc = %acc + %g };  %v = u(%w, %acc)
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from meshwright.partitioner.lower.lowered import Lowered
from meshwright.partitioner.lower.time_crossings import is_crossing, separate
from meshwright.partitioner.lower.time_positions import Positions
from meshwright.partitioner.lower.time_stages import Stages, find_stages
from meshwright.program.ir import Atom, Op, Program, Value, Wire
from meshwright.program.ops import Builder


def run_in_time(lowered: Lowered) -> Lowered:
    """The device program with its sequential axis, if any, turned into scans.

    Raises `MeshError` with the source line of what a loop in time cannot express.
    """
    if not lowered.mesh.sequential:
        return lowered
    (axis,) = lowered.mesh.sequential
    alone = separate(lowered, axis)
    loops = TimeLoops(alone, axis, find_stages(alone.program, axis))
    ops = loops.ops()
    outputs = tuple(loops.last.get(atom, atom) for atom in alone.program.outputs)
    program = replace(alone.program, ops=tuple(ops), outputs=outputs)
    return replace(
        alone, program=program, mesh=lowered.mesh.spatial, origins=loops.origins
    )


class TimeLoops:
    """Rewrites one program so that its sequential axis becomes scans.

    stacked: for values that later loops read, the stack over all iterations.
    last: for a loop's value that is an output, its value in the last iteration. Such a
        value leaves a region whose other results depend on the position; all iterations
        compute the same.
    """

    def __init__(self, lowered: Lowered, axis: str, stages: Stages) -> None:
        self.lowered = lowered
        self.axis = axis
        self.length = lowered.mesh.size(axis)
        self.stages = stages
        self.origins = {**lowered.origins}
        self.stacked: dict[Value, Value] = {}
        self.last: dict[Atom, Value] = {}

    def ops(self) -> list[Op]:
        """The ops of the rewritten program: scans, and the ops outside of them."""
        found: list[Op] = []
        for stage in range(self.stages.num_loops + 1):
            ops = self.lowered.program.ops
            found += [op for op in ops if self.stages.outside.get(op) == stage]
            inside = [op for op in ops if self.stages.loop.get(op) == stage]
            if inside:
                found += self.loop(stage, inside)
        return found

    def loop(self, stage: int, inside: Sequence[Op]) -> list[Op]:
        """The ops that replace loop number `stage`: its scan, and ops before, after."""
        crossings = [op for op in inside if is_crossing(op, self.axis)]
        looped = [op for op in inside if not is_crossing(op, self.axis)]
        made = {value for op in looped for value in op.results}
        body = _Body()
        self._enter(body, made, inside)
        places = Positions(self.lowered.mesh, self.axis, self.origins)
        for op in looped:
            body.ops += places.resolved(op, body.position, body.known)
        before = Builder(self.lowered.mesh, source=inside[0].source)
        after = Builder(self.lowered.mesh, source=inside[0].source)
        sums = [op for op in crossings if _is_added_up(op)]
        for op in sums:
            x = op.operands[0]
            body.add_up(op, before.full(x.shape, 0, x.dtype))
        for value in dict.fromkeys(self.lowered.program.outputs):
            if value not in made:
                continue
            if value.dtype.startswith("key<"):  # there is no zero to start from
                body.stack(value, self.length)
                first = after.slice(body.stacks[value], 0, 0, 1)
                self.last[value] = after.reshape(first, value.shape)
            else:
                zero = before.full(value.shape, 0, value.dtype)
                self.last[value] = body.carry_last(value, zero)
        kept = self._kept(stage, made)
        rest = [op for op in crossings if op not in sums]
        for atom in dict.fromkeys((*kept, *(op.operands[0] for op in rest))):
            if atom not in body.stacks:
                body.stack(atom, self.length)
        self.stacked.update((v, body.stacks[v]) for v in kept)
        for op in rest:
            self._hand_on(after, op, body.stacks[op.operands[0]])
        positions = before.iota((self.length,), 0)
        return [*before.ops, body.finish(positions, self.length), *after.ops]

    def _enter(self, body: "_Body", made: set[Value], inside: Iterable[Op]) -> None:
        """Make the values that a loop's ops read from outside inputs of its body."""
        read = dict.fromkeys(a for op in inside for a in op.operands)
        for atom in read:
            if isinstance(atom, Value) and atom not in made:
                body.enter(atom, self.stacked.get(atom))

    def _kept(self, stage: int, made: set[Value]) -> list[Value]:
        """The values of a loop that later loops read, in program order."""
        loop = self.stages.loop
        read = {a for op in loop if loop[op] > stage for a in op.operands}
        order = [v for op in loop if loop[op] == stage for v in op.results]
        return [v for v in order if v in made and v in read]

    def _hand_on(self, after: Builder, op: Op, stack: Value) -> None:
        """Reduce or concatenate a value's stack over iterations, as `op` says."""
        if op.kind == "all_reduce":
            monoid = str(op.params["monoid"])
            is_any = op.results[0].dtype == "bool" and monoid == "sum"
            after.reduce(stack, (0,), "or" if is_any else monoid)
        else:
            _concatenated(after, stack, int(str(op.params["dim"])))
        after.ops[-1] = replace(after.ops[-1], results=op.results)


def _is_added_up(op: Op) -> bool:
    return (
        op.kind == "all_reduce"
        and op.params["monoid"] == "sum"
        and op.results[0].dtype != "bool"
    )


def _concatenated(builder: Builder, stack: Value, dim: int) -> Value:
    """The slices of a stack along its leading dim, concatenated along `dim`."""
    length, *shape = stack.shape
    if dim:
        order = (*range(1, dim + 1), 0, *range(dim + 1, len(stack.shape)))
        stack = builder.transpose(stack, order)
    shape[dim] *= length
    return builder.reshape(stack, tuple(shape))


class _Body:
    """The body of one scan while it is written.

    known: by value of the outer program, the value that replaces it in the body.
    stacks: by value, its stack over all iterations, which the scan returns.
    """

    def __init__(self) -> None:
        self.position = Value((), "int32")
        self.known: dict[Atom, Atom] = {}
        self.stacks: dict[Atom, Value] = {}
        self.ops: list[Op] = []
        self._inputs: list[Value] = [self.position]
        self._outputs: list[Atom] = []
        self._operands: list[Atom] = []
        self._results: list[Value] = []
        self._wires: list[Wire] = []

    def enter(self, atom: Value, stack: Value | None) -> None:
        """Make an outer value an input; of a `stack`, the iteration's element."""
        inner = Value(atom.shape, atom.dtype)
        self.known[atom] = inner
        wire = Wire(
            len(self._operands), ((0, len(self._inputs)),), is_stacked=stack is not None
        )
        self._operands.append(atom if stack is None else stack)
        self._inputs.append(inner)
        self._wires.append(wire)

    def add_up(self, op: Op, zero: Value) -> None:
        """Add the operand of an all-reduce to a carry; the scan returns the total."""
        x = self.known.get(op.operands[0], op.operands[0])
        before, after = Value(x.shape, x.dtype), Value(x.shape, x.dtype)
        self.ops.append(Op("add", (before, x), (after,), source=op.source))
        self._carry(zero, before, after, op.results[0])

    def carry_last(self, atom: Atom, zero: Value) -> Value:
        """Carry a value, so that the scan returns that of the last iteration."""
        result = Value(atom.shape, atom.dtype)
        before = Value(atom.shape, atom.dtype)
        self._carry(zero, before, self.known.get(atom, atom), result)
        return result

    def _carry(self, start: Value, before: Value, after: Atom, last: Value) -> None:
        wire = Wire(
            len(self._operands),
            ((0, len(self._inputs)),),
            ((0, len(self._outputs)),),
            len(self._results),
        )
        self._operands.append(start)
        self._inputs.append(before)
        self._outputs.append(after)
        self._results.append(last)
        self._wires.append(wire)

    def stack(self, atom: Atom, length: int) -> None:
        """Make the scan return a value of all iterations, stacked."""
        result = Value((length, *atom.shape), atom.dtype)
        wire = Wire(
            outputs=((0, len(self._outputs)),),
            result=len(self._results),
            is_stacked=True,
        )
        self._outputs.append(self.known.get(atom, atom))
        self._results.append(result)
        self._wires.append(wire)
        self.stacks[atom] = result

    def finish(self, positions: Value, length: int) -> Op:
        """The complete scan op; `positions` holds the number of each iteration."""
        wire = Wire(len(self._operands), ((0, 0),), is_stacked=True)
        body = Program(tuple(self._inputs), tuple(self.ops), tuple(self._outputs))
        source = next((op.source for op in self.ops if op.source), "")
        return Op(
            "scan",
            (*self._operands, positions),
            tuple(self._results),
            {"length": length, "reverse": False, "unroll": 1},
            (body,),
            source,
            wires=(*self._wires, wire),
        )
