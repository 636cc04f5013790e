"""Instruction fusion: which ops run together, and thus which values are stored.

XLA: `InstructionFusion`. A compiler does not store the result of an elementwise op: its
consumers compute it where they need it. So a program is divided into fusions, each with
one root op and the producers that feed it, and only roots write. A compiler's decisions
on single results are its `FusionPolicy`; `producer_fusion` has XLA's common rules.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace

from meshwright.predict.compilers.model.compilation import Compilation
from meshwright.predict.compilers.model.dataflow import Flow, dataflow_of
from meshwright.predict.compilers.model.fusion import (
    BARRIER,
    PARTIAL_READS,
    FusedProducers,
    Fusion,
    FusionKind,
    kind_of,
    share_read,
)
from meshwright.predict.compilers.model.policies import FusedOp, FusionPolicy
from meshwright.predict.compilers.model.tiled_layouts import Layouts
from meshwright.predict.roofline.matrix_unit import uses_matrix_unit
from meshwright.program.ir import Op, Program, Value, itemsize_bytes
from meshwright.program.ops import OpWork, Trait, has_trait, ops_with, work_of

_NOT_ELEMENTWISE = frozenset(
    {*ops_with(Trait.MOVES), *ops_with(Trait.SCATTERS), "copy_p", "iota"}
    - {"stack", "tile", "unstack"}  # not seen compiled
)
"""Ops that are fused into loops, but not element by element."""


def fuse_instructions(compilation: Compilation) -> Compilation:
    """The compilation with its program's ops grouped into fusions."""
    policy = compilation.compiler.fusion
    fusions, layouts = fuse(compilation.program, compilation.layouts, policy)
    return replace(compilation, fusions=fusions, layouts=layouts)


def fuse(
    program: Program, layouts: Layouts, policy: FusionPolicy
) -> tuple[tuple[Fusion, ...], Layouts]:
    """Group the ops of a program into fusions, in the order of their last ops.

    Also returns the layouts, to which values in bodies of control flow are added.
    """
    builder = _Builder(program, layouts, policy)
    return builder.fusions(), builder.layouts


class _Builder:
    """State of the walk over a program's ops that groups them into fusions.

    layouts: the layouts so far; bodies of control flow add to them.
    links: for each value in a chain of ops that have one consumer each, its producer. Only
        the last op of a chain needs a decision; the others are fused into it.
    fused: for each other value that its consumers compute themselves, the ops to
        compute it.
    consumers: for a value that only some consumers compute themselves, those consumers.
    """

    def __init__(
        self, program: Program, layouts: Layouts, policy: FusionPolicy
    ) -> None:
        self.flow = policy.reclassify(dataflow_of(program, layouts))
        self.layouts = layouts
        self.policy = policy
        self.links = policy.single_consumer_chains(self.flow)
        self.fused: dict[Value, FusedProducers] = {}
        self.consumers: dict[Value, frozenset[Op]] = {}
        self.emitted_casts: set[Value] = set()
        kinds = {op.kind for op in program.ops}
        self.reads_parts = not PARTIAL_READS.isdisjoint(kinds)

    def fusions(self) -> tuple[Fusion, ...]:
        """One fusion for each op that writes a result to memory or has a side effect.

        Ops are visited producers first, so that one walk decides on all values.
        """
        found: list[Fusion] = []
        within = set(self.links.values())
        for op, kind in self.flow.kinds.items():
            if op in within:
                continue
            root = FusedOp(op, self._producers(op), self.flow, self.layouts)
            stored = self._decide(root)
            if op.bodies:
                found += self._casts(op)
            is_bitcast = has_trait(op.kind, Trait.ALIASES_OPERAND)
            if (stored or op.has_effect) and not is_bitcast:
                found.append(self._fusion(root, kind, stored))
        return tuple(found)

    def _decide(self, root: FusedOp) -> tuple[Value, ...]:
        """The results of an op that are written to memory.

        Results that consumers compute themselves are recorded on the way.
        """
        stored: list[Value] = []
        op, producers, *_ = root
        for value, decision in zip(op.results, self.policy.decide(root), strict=True):
            if decision.is_fused:
                ops = {**producers.ops, op: work_of(op)}
                self.fused[value] = FusedProducers(ops, producers.reads)
                if decision.consumers is not None:
                    self.consumers[value] = decision.consumers
            if decision.is_stored:
                stored.append(value)
        return tuple(stored)

    def _casts(self, op: Op) -> list[Fusion]:
        """Fusions that cast operands to bfloat16 for a loop that reads them first."""
        found: list[Fusion] = []
        for value in self.flow.operands[op]:
            cast = self.flow.casts.get(value)
            if cast is None or value in self.emitted_casts:
                continue
            self.emitted_casts.add(value)
            producers = FusedProducers({}, dict.fromkeys(self.flow.operands[cast]))
            root = FusedOp(cast, producers, self.flow, self.layouts)
            found.append(self._fusion(root, FusionKind.LOOP, cast.results))
        return found

    def _producers(self, op: Op) -> FusedProducers:
        """The ops that are fused into an op, and the values that they read from memory."""
        links, fused, operands = self.links.get, self.fused, self.flow.operands
        ops: dict[Op, OpWork] = {}
        reads: dict[Value, None] = {}
        chain: list[Op] = []
        waiting = operands[op][::-1]
        while waiting:
            value = waiting.pop()
            link = links(value)
            if link is not None:
                chain.append(link)
                waiting += operands[link][::-1]
                continue
            known = self._fused_for(op, value) if value in fused else None
            if known is None:
                reads[value] = None
            else:
                ops |= known.ops
                reads |= known.reads
        for link in reversed(chain):
            ops[link] = work_of(link)
        return FusedProducers(ops, reads)

    def _fused_for(self, op: Op, value: Value) -> FusedProducers | None:
        """The ops with which `op` computes a value itself; `None` if it reads the value."""
        is_computed = value not in self.consumers or op in self.consumers[value]
        return self.fused.get(value) if is_computed else None

    def _fusion(
        self, root: FusedOp, kind: FusionKind, writes: tuple[Value, ...]
    ) -> Fusion:
        op, producers, flow, _ = root
        policy = self.policy
        bodies = self._bodies(op) if op.bodies else ()
        slices = producers.slices(op, flow.operands) if self.reads_parts else {}
        shares = {v: share_read(each) for v, each in slices.items()}
        reads, work = tuple(producers.reads), producers.work_with(work_of(op), shares)
        parts = {v: slices[v] for v in reads if shares.get(v, 1.0) < 1}
        return Fusion(
            op, kind, reads, writes, work, updated_operand(op, kind, reads, flow),
            bodies,
            overwrites=policy.aliased_operands(root),
            replaces=policy.carried_operands(op, flow) if op.bodies else {},
            slices=parts,
            sides=self._sides(op),
        )  # fmt: skip

    def _bodies(self, op: Op) -> tuple[tuple[Fusion, ...], ...]:
        """The fusions of each body of an op; adds the bodies' values to the layouts."""
        self.layouts = self._layouts_in_bodies(op)
        bodies: list[tuple[Fusion, ...]] = []
        for body in op.bodies:
            fusions, self.layouts = fuse(body, self.layouts, self.policy)
            bodies.append(fusions)
        return tuple(bodies)

    def _layouts_in_bodies(self, op: Op) -> Layouts:
        """The layouts, after marking values of an op's bodies that have no own buffer.

        Body inputs that consumers compute are never stored; slices are part of a
        stacked array.
        """
        recomputed: set[Value] = set()
        slices = self.policy.stack_outputs(op)
        whole = [_read_whole(body, self.policy.slice_readers) for body in op.bodies]
        for wire in op.wires:
            operand = None if wire.operand is None else op.operands[wire.operand]
            for body, i in wire.inputs:
                value = op.bodies[body].inputs[i]
                if wire.is_stacked and value not in whole[body]:
                    slices.add(value)
                is_remade = operand in self.fused or operand in self.links
                if is_remade and not wire.is_stacked and wire.result is None:
                    recomputed.add(value)
        if not recomputed and not slices:
            return self.layouts
        known = self.layouts
        return known.changed(
            recomputed=known.recomputed | recomputed, slices=known.slices | slices
        )

    def _sides(self, op: Op) -> tuple[tuple[Value, ...], ...]:
        """For both operands of a matrix product, the stored values it is computed from."""
        if op.kind != "dot_general" or not uses_matrix_unit(op):
            return ()
        sides = [(v, self._fused_for(op, v)) for v in self.flow.operands[op][:2]]
        return tuple([(v,) if fed is None else tuple(fed.reads) for v, fed in sides])


def _read_whole(body: Program, slice_readers: Collection[FusionKind]) -> set[Value]:
    """Values of a body that some op reads from memory as a whole, not slice by slice.

    slice_readers: kinds of fusion that read slices of stacked arrays in place.
    """
    return {
        v
        for op in body.ops
        if kind_of(op) not in slice_readers or op.kind == BARRIER
        for v in op.operands
        if isinstance(v, Value)
    }


def elementwise_aliases(root: FusedOp) -> tuple[Value, ...]:
    """Operands whose buffers the result may take, if nothing else reads them later.

    Each of their elements must be needed only for the result's element at the same
    position. A scatter may take the buffer of the operand that it adds to.
    """
    op, producers, flow, _ = root
    if has_trait(op.kind, Trait.SCATTERS):
        return tuple(flow.operands[op][:1])
    if not op.results or not _is_elementwise(op):  # an effect has no results
        return ()
    shape, size = op.results[0].shape, itemsize_bytes(op.results[0].dtype)
    alike = [
        v
        for v in producers.reads
        if v.shape == shape and itemsize_bytes(v.dtype) == size
    ]
    if not alike:
        return ()
    needed_elsewhere: set[Value] = set()
    for each in (op, *reversed(producers.ops)):
        is_moved = each.results[0].shape != shape or not _is_elementwise(each)
        if is_moved or not needed_elsewhere.isdisjoint(each.results):
            needed_elsewhere.update(flow.operands[each])
    return tuple([v for v in alike if v not in needed_elsewhere])


def _is_elementwise(op: Op) -> bool:
    """Whether each element of the result needs only elements at the same position."""
    return op.kind not in _NOT_ELEMENTWISE and kind_of(op) is FusionKind.LOOP


def updated_operand(
    op: Op, kind: FusionKind, reads: Sequence[Value], flow: Flow
) -> Value | None:
    """The operand that an op may update in place; `None` if there is none.

    For a dynamic-update-slice this is the updated array. For an elementwise op it is the
    first operand with the result's shape and dtype; the result takes its buffer only if the
    caller donated it.
    """
    if op.kind == "dynamic_update_slice":
        first = flow.operands[op][0]
        return first if first in reads else None
    if kind is not FusionKind.LOOP:
        return None
    (result, *_) = op.results
    for value in reads:
        if value.shape == result.shape and value.dtype == result.dtype:
            return value
    return None
