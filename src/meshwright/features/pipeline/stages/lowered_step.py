"""Sorts the ops of a lowered pipelined step by stage and pass.

The step of one microbatch is lowered as a whole, with all stages in it. Each device op
belongs to the stage and pass of the op for which lowering wrote it. Ops that do not
depend on the microbatch belong to none, and run once.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property

from meshwright.features.pipeline.stages.stage_part import PartKind, StagePart
from meshwright.features.pipeline.stages.staged import Staged
from meshwright.features.pipeline.stages.totals import Total
from meshwright.partitioner.lower import Lowered
from meshwright.partitioner.structure.parts import PartSource
from meshwright.program.ir import Atom, Op, Sharding, Value, num_bytes
from meshwright.program.ops import COLLECTIVES, Builder

LEAST_PARTED = 2**20
"""Least bytes of a value that devices with copies of it send in parts.

Gathering takes 40 us on H100, in which a network card of 400 Gb/s sends 2 MB.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Send:
    """A value that one pipeline stage computes and another reads.

    value: the value on the sender, or the part of it that each device sends. received:
        the same on the receiver.
    to: the receiving stage. part: the stage and pass that compute the value.
    """

    value: Value
    received: Value
    to: int
    part: StagePart


@dataclass(slots=True, eq=False)
class LoweredStep:
    """The device ops of a lowered pipelined step, sorted by stage and pass.

    once: ops that depend on no microbatch, and reshardings of a microbatch's inputs.
    passes: ops of each pass of a stage, in order.
    updates: ops that depend on sums over microbatches, by level (below) and stage.
    sends: values that go from stage to stage, by their numbers in the staged step.
    totals: sums over microbatches, by the pass that computes the addend.
    shardings: for inputs, sends and outputs, their shardings over the stage's devices.
    varying: values that differ between microbatches.
    level: for a value that depends on totals, the number of sends between updates of
        different stages that it depends on.
    """

    lowered: Lowered
    once: list[Op] = field(default_factory=list[Op])
    passes: dict[StagePart, list[Op]] = field(default_factory=dict)
    updates: dict[tuple[int, int], list[Op]] = field(default_factory=dict)
    sends: dict[int, Send] = field(default_factory=dict)
    totals: dict[StagePart, list[Total]] = field(default_factory=dict)
    shardings: dict[Atom, Sharding] = field(default_factory=dict)
    varying: set[Value] = field(default_factory=set)
    level: dict[Atom, int] = field(default_factory=dict)


_RESHARDS = (*COLLECTIVES, "all_slice")


def read_lowered(staged: Staged, lowered: Lowered) -> LoweredStep:
    """Sort the device ops of a lowered pipelined step by stage and pass."""
    return _Reader(staged, LoweredStep(lowered)).read()


@dataclass
class _Reader:
    """Fills in a `LoweredStep`.

    pass_of: for each value that differs between microbatches, the pass that computes it.
    """

    staged: Staged
    step: LoweredStep
    pass_of: dict[Atom, StagePart] = field(default_factory=dict)

    @cached_property
    def inputs(self) -> frozenset[Atom]:
        """The inputs that are slices of the batch."""
        return frozenset(
            self.step.varying.intersection(self.step.lowered.program.inputs)
        )

    def read(self) -> LoweredStep:
        """The step with all of its ops sorted."""
        step, staged = self.step, self.staged
        lowered, program = step.lowered, step.lowered.program
        step.shardings.update(zip(program.inputs, lowered.inputs, strict=True))
        for atom, sharding in zip(program.outputs, lowered.outputs, strict=True):
            if isinstance(atom, Value):
                step.shardings.setdefault(atom, sharding)
        for i, value in enumerate(program.inputs):
            if i in staged.slices or i == len(program.inputs) - 1:
                step.varying.add(value)
        sent = [op for op in staged.program.ops if op.kind == "send"]
        for op in program.ops:
            if op.kind == "send":
                self._send(op, sent[int(str(op.params["index"]))])
            elif op.kind == "total":
                self._total(op)
            else:
                self._compute(op)
        step.sends = dict(sorted(step.sends.items()))
        return step

    def _send(self, op: Op, original: Op) -> None:
        step = self.step
        (value,), (received,) = op.operands, op.results
        assert isinstance(value, Value), f"a literal is sent: {op}"
        part = _part_of(op)
        assert part is not None, f"the send of {value} belongs to no part"
        if value in step.varying:
            step.varying.add(received)
            self.pass_of[received] = self.pass_of[value]
        elif value in step.level:
            step.level[received] = step.level[value] + 1
        else:  # every stage computes for itself what depends on no microbatch
            step.once.append(replace(op, kind="tag", params={"name": "once"}))
            return
        sharding = step.lowered.stored[original.results[0]]
        step.shardings[received] = step.shardings[value] = sharding
        send = Send(value, received, int(str(op.params["to"])), part)
        if value in step.varying:
            send = self._in_parts(send, sharding)
        step.sends[int(str(op.params["index"]))] = send

    def _in_parts(self, send: Send, sharding: Sharding) -> Send:
        """The send of a part by each device, if several hold the same large value.

        The receiving stage gathers the parts, in its first pass that can read them. So a
        slow link between submeshes carries each byte once (the scatter/gather
        optimization of Narayanan et al., SC 2021, section 4.1).
        """
        mesh, value = self.step.lowered.mesh, send.value
        free = tuple(name for name, _ in mesh.sizes if name not in sharding.axes)
        count = mesh.size(free) if free else 1
        dims = (d for d, size in enumerate(value.shape) if size % count == 0)
        dim = next(dims, None)
        if count == 1 or dim is None or num_bytes(value) < LEAST_PARTED:
            return send
        is_later = send.part.kind is PartKind.FORWARD and send.to > send.part.stage
        kind = PartKind.FORWARD if is_later else PartKind.BACKWARD
        reader = StagePart(kind, send.to)
        before, after = Builder(mesh), Builder(mesh)
        sent = before.all_slice(value, dim, free)
        received = Value(sent.shape, sent.dtype)
        gathered = after.all_gather(received, dim, free)
        after.ops[-1] = replace(after.ops[-1], results=(send.received,))
        self.step.passes.setdefault(send.part, []).extend(before.ops)
        self.step.passes.setdefault(reader, []).extend(after.ops)
        self.step.varying.update((sent, received, gathered))
        self.pass_of[sent] = self.pass_of[received] = send.part
        cut = list(sharding.dims)
        cut[dim] += free
        part = replace(sharding, dims=tuple(cut))
        self.step.shardings[sent] = self.step.shardings[received] = part
        return replace(send, value=sent, received=received)

    def _total(self, op: Op) -> None:
        step, part = self.step, op.params["part"]
        assert isinstance(part, StagePart), "a total belongs to no part"
        monoid = str(op.params["monoid"])
        total = Total(op.operands[0], op.results[0], monoid)
        step.totals.setdefault(part, []).append(total)
        step.level[op.results[0]] = 0

    def _compute(self, op: Op) -> None:
        step, part = self.step, _part_of(op)
        levels = [step.level[atom] for atom in op.operands if atom in step.level]
        if levels:
            assert part is not None, f"an op on totals belongs to no stage: {op}"
            step.level.update(dict.fromkeys(op.results, max(levels)))
            step.updates.setdefault((max(levels), part.stage), []).append(op)
            return
        is_pass = part is not None and part.kind is not PartKind.UPDATE
        if op.kind in _RESHARDS and self.inputs.issuperset(op.operands):
            # Stages that read the same part of the batch may share its resharding.
            step.varying.update(op.results)
            step.once.append(op)
            return
        is_once = step.varying.isdisjoint(op.operands)
        if is_once and not (is_pass and op.has_effect):
            step.once.append(op)
            return
        if part is None or not is_pass:  # it prepares an addend of a total
            part = next(self.pass_of[a] for a in op.operands if a in self.pass_of)
        step.varying.update(op.results)
        self.pass_of.update(dict.fromkeys(op.results, part))
        step.passes.setdefault(part, []).append(op)


def _part_of(op: Op) -> StagePart | None:
    part = op.source.part if isinstance(op.source, PartSource) else None
    return part if isinstance(part, StagePart) else None
