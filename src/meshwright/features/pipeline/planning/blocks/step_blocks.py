"""A train step as a sequence of blocks: which op of the step belongs to which block.

A block is an op of the forward pass, or one iteration of its loop over layers. An op of
the backward pass belongs to the block whose values and weights it reads, and an op of
the update to the block of the gradient that it applies. A pipeline is a cut of this
sequence: the backward pass of a stage runs on the same devices as its forward pass.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from meshwright.errors import PlanError
from meshwright.features.pipeline.planning.blocks.carried_values import (
    carried_outputs,
    carried_results,
    needed_ops,
)
from meshwright.features.pipeline.planning.blocks.forward_pass import forward_end
from meshwright.planner.prices.value_roles import Role, roles_of
from meshwright.predict.roofline.work import program_work
from meshwright.program.analysis.executions import num_iterations
from meshwright.program.capture import Captured
from meshwright.program.ir import Atom, Op, Program, Value, num_bytes

LATE = (Role.GRADIENT, Role.UPDATE)


class StepPhase(Enum):
    """The phase of a train step to which an op belongs."""

    FORWARD = "forward"
    INPUT_GRADIENT = "input gradient"
    WEIGHT_GRADIENT = "weight gradient"
    UPDATE = "update"


BACKWARD = (StepPhase.INPUT_GRADIENT, StepPhase.WEIGHT_GRADIENT)


@dataclass(frozen=True, slots=True)
class OpSite:
    """The blocks and the phase of the step to which an op belongs.

    first, count: blocks `first` to `first + count - 1`, each with an equal share of the
        op.
    """

    phase: StepPhase
    first: int
    count: int


@dataclass(frozen=True, slots=True)
class Block:
    """A block of the forward pass: an op, or one iteration of a loop over layers.

    op: index of its op in the program.
    iteration: iteration of this op, if it is a loop over layers.
    flops: FLOPs of its forward pass.
    incoming: values that this and later blocks read from earlier blocks. Those that
        inputs alone determine at little cost, such as masks, do not count. A loop's
        results stand for what its iterations carry.
    """

    op: int
    iteration: int
    flops: float
    incoming: tuple[Value, ...]

    @property
    def incoming_bytes(self) -> float:
        """Bytes of the values that enter the block."""
        return float(sum(map(num_bytes, self.incoming)))


@dataclass(frozen=True, slots=True)
class StepBlocks:
    """The blocks of a train step, and the block and phase of each op.

    sites: block and phase of each op, also of ops in nested programs.
    forward_end: number of ops of the forward pass, which come first.
    """

    program: Program
    blocks: tuple[Block, ...]
    sites: Mapping[Op, OpSite]
    forward_end: int

    @classmethod
    def of(cls, captured: Captured) -> StepBlocks:
        """Divide a captured train step into blocks.

        Raises `PlanError` if the step has no backward pass.
        """
        end = forward_end(captured)
        reader = _SiteReader(captured, end)
        sites = reader.sites()
        if not any(s.phase is StepPhase.WEIGHT_GRADIENT for s in sites.values()):
            raise PlanError(
                "a pipeline is planned for a train step, and this step has no backward "
                "pass that can be told from its forward pass; give a function that "
                "returns updated weights, and the loss"
            )
        return cls(captured.program, reader.blocks(), sites, end)


class _SiteReader:
    """Finds the block and the phase of each op of one train step.

    forward: each op of the forward pass, with the index of its first block.
    counts: number of blocks of an op, by the index of its first block.
    """

    def __init__(self, captured: Captured, end: int) -> None:
        self.program = captured.program
        self.end = end
        self.roles = roles_of(self.program)
        self.producers = {r: op for op in self.program.ops for r in op.results}
        ties = set(captured.ties.values())
        self.state = {v for i, v in enumerate(self.program.inputs) if i in ties}
        self.forward: list[tuple[Op, int]] = []
        self.counts: dict[int, int] = {}
        first = 0
        for op in self.program.ops[:end]:
            count = num_iterations(op) if self._is_layer_loop(op) else 1
            self.forward.append((op, first))
            self.counts[first] = count
            first += count

    def blocks(self) -> tuple[Block, ...]:
        """The blocks of the forward pass."""
        incoming = self._incoming()
        return tuple(
            Block(
                index,
                iteration,
                program_work(Program((), (op,), ())).flops / self.counts[start],
                incoming[start] if iteration == 0 else carried_results(op),
            )
            for index, (op, start) in enumerate(self.forward)
            for iteration in range(self.counts[start])
        )

    def _is_layer_loop(self, op: Op) -> bool:
        """Whether each iteration of a scan has weights of its own."""
        if op.kind != "scan":
            return False
        stacked = [
            op.operands[w.operand]
            for w in op.wires
            if w.is_stacked and w.inputs and w.operand is not None
        ]
        return any(map(self._is_made_of_state, stacked))

    def _is_made_of_state(self, atom: Atom) -> bool:
        """Whether a value is a weight, or computed from weights alone."""
        while isinstance(atom, Value) and atom not in self.state:
            op = self.producers.get(atom)
            values = [] if op is None else [v for v in op.operands if v in self.roles]
            if self.roles.get(atom) is not Role.WEIGHT or not values:
                return False
            atom = values[0]
        return isinstance(atom, Value)

    def _incoming(self) -> dict[int, tuple[Value, ...]]:
        """The values that an op and later ops read from earlier ops.

        The keys are the first blocks of the ops.
        """
        last: dict[Atom, int] = {}
        for op, start in self.forward:
            last.update(dict.fromkeys(op.operands, start))
        live: list[Value] = []
        found: dict[int, tuple[Value, ...]] = {}
        for op, start in self.forward:
            live = [v for v in live if last[v] >= start]
            found[start] = tuple(live)
            live += [
                r
                for r in op.results
                if r in last and self.roles.get(r) is not Role.WEIGHT
            ]
        return found

    # -- sites ------------------------------------------------------------------------

    def sites(self) -> dict[Op, OpSite]:
        """The block and phase of each op of the program and of its nested programs."""
        known: dict[Value, list[int]] = {}
        found: dict[Op, OpSite] = {}
        for op, start in self.forward:
            for value in (v for v in op.operands if isinstance(v, Value)):
                known.setdefault(value, []).append(start)
            for result in op.results:
                known[result] = [start]
            found[op] = OpSite(StepPhase.FORWARD, start, self.counts[start])
        # A mask or the like may be made early and be read everywhere.
        known = {v: blocks for v, blocks in known.items() if self._tells_block(v)}
        firsts = self._backward_firsts(known)
        split = self._input_gradients(firsts)
        for op, first in firsts.items():
            phase = _gradient_phase(op, split)
            if self._is_update(op) and op not in split:
                phase = StepPhase.UPDATE
            found[op] = OpSite(phase, first, self.counts[first])
        for op, site in [*found.items()]:
            found |= self._nested_sites(op, site, split)
        return found

    def _tells_block(self, value: Value) -> bool:
        """Whether an op that reads a value belongs to that value's blocks.

        It does not if the value is a cheap one that many blocks read, such as a mask.
        """
        is_light = self.roles.get(value) is Role.WEIGHT and value in self.producers
        return not is_light or self._is_made_of_state(value)

    def _backward_firsts(self, known: Mapping[Value, Sequence[int]]) -> dict[Op, int]:
        """The index of the first block of each op after the forward pass.

        known: blocks that compute or read each value of the forward pass.
        """
        at: dict[Value, int] = {}
        found: dict[Op, int] = {}
        unknown: set[Op] = set()  # of constants and optimizer state alone
        for op in self.program.ops[self.end :]:
            values = [v for v in op.operands if isinstance(v, Value)]
            limit = min((at[v] for v in values if v in at), default=None)
            most = max(self.counts) if limit is None else limit
            read = [
                max(block for block in known[v] if block <= most)
                for v in values
                if v in known and min(known[v]) <= most
            ]
            first = found[op] = min([*read, most])
            if limit is None and not read:
                unknown.add(op)
                continue
            for result in op.results:
                # A scalar, such as the norm of all gradients, says nothing.
                if result.shape not in ((), (1,)):
                    at[result] = first
        read_at: dict[Value, int] = {}
        for op in reversed([*found]):
            if op in unknown:
                readers = [read_at[r] for r in op.results if r in read_at]
                found[op] = min(readers, default=found[op])
            read_at |= {v: found[op] for v in op.operands if isinstance(v, Value)}
        return found

    def _is_update(self, op: Op) -> bool:
        """Whether an op belongs to the update: it only combines gradients and state."""
        if op.bodies or not op.results:
            return False
        values = [v for v in op.operands if isinstance(v, Value)]
        is_late = all(self.roles.get(r) in (*LATE, Role.WEIGHT) for r in op.results)
        return is_late and all(v in self.roles for v in values)

    def _input_gradients(self, firsts: Mapping[Op, int]) -> set[Op]:
        """Ops of the backward pass whose results earlier blocks wait for."""
        backward = [op for op in firsts if not self._is_update(op)]
        wanted: dict[Value, int] = {}  # the first block that reads each value
        found: set[Op] = set()
        for op in reversed(backward):
            first = firsts[op]
            reads = min((wanted.get(r, first) for r in op.results), default=first)
            if reads < first:
                found.add(op)
            for value in (v for v in op.operands if isinstance(v, Value)):
                wanted[value] = min(wanted.get(value, first), reads, first)
            carried = carried_outputs(op)
            if carried and self.counts.get(first, 1) > 1:
                # Iterations before wait for what the loop carries.
                found |= needed_ops(op.bodies[0], carried)
        return found

    def _nested_sites(
        self, op: Op, site: OpSite, split: set[Op]
    ) -> Iterator[tuple[Op, OpSite]]:
        """The blocks and phase of ops in the nested programs of an op.

        In a loop over layers of the backward pass they are split by phase: gradients of
        inputs and of weights.
        """
        is_loop = site.count > 1 and site.phase in BACKWARD
        for body in op.bodies:
            for inner in body.walk():
                if is_loop:
                    site = replace(site, phase=_gradient_phase(inner, split))
                yield inner, site


def _gradient_phase(op: Op, input_gradients: Collection[Op]) -> StepPhase:
    """The phase of an op of the backward pass."""
    if op in input_gradients:
        return StepPhase.INPUT_GRADIENT
    return StepPhase.WEIGHT_GRADIENT
