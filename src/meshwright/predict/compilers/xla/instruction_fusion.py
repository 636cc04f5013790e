"""Instruction fusion: which ops run together, and so which values are ever stored.

XLA: `InstructionFusion`. A compiler does not store what an elementwise op makes: its
consumers compute it where they need it. So a program falls into fusions, each with one
root op and the producers that feed it, and only roots write. What a compiler decides on
single results is its `FusionPolicy`; `producer_fusion` has XLA's common rules. Products
and reductions fuse such producers and write; a bitcast is the same memory under another
name, and no op.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from meshwright.predict.compilers.hlo.compilation import Compilation
from meshwright.predict.compilers.hlo.control_flow import layouts_in_bodies
from meshwright.predict.compilers.hlo.dataflow import dataflow_of
from meshwright.predict.compilers.hlo.fusion import Fusion, FusionKind
from meshwright.predict.compilers.hlo.fusion_policy import FusionPolicy
from meshwright.predict.compilers.hlo.layouts import Layouts
from meshwright.predict.compilers.hlo.producers import SLICE_OF_DEVICE, FusedProducers
from meshwright.predict.compilers.xla.aliasing import updated_operand
from meshwright.predict.roofline.padding import uses_matrix_unit
from meshwright.program.ir import Op, Program, Value
from meshwright.program.ops import OpWork, Trait, has_trait, work_of

RewriteFn = Callable[[Sequence[Fusion], Program], Sequence[Fusion]]
"""New fusions of a program or body in the place of the ones given."""


def fuse_instructions(compilation: Compilation) -> Compilation:
    """The compilation with its program's ops grouped into fusions."""
    policy = compilation.compiler.fusion
    fusions, layouts = fuse(compilation.program, compilation.layouts, policy)
    return replace(compilation, fusions=fusions, layouts=layouts)


def rewrite_fusions(compilation: Compilation, rewrite: RewriteFn) -> Compilation:
    """The compilation with the fusions of its program, and of each body, rewritten."""
    fusions = _rewritten(compilation.fusions, compilation.program, rewrite)
    return replace(compilation, fusions=fusions)


def _rewritten(
    fusions: Sequence[Fusion], program: Program, rewrite: RewriteFn
) -> tuple[Fusion, ...]:
    inner = [
        replace(fusion, bodies=_rewritten_bodies(fusion, rewrite))
        if fusion.bodies
        else fusion
        for fusion in fusions
    ]
    return tuple(rewrite(inner, program))


def _rewritten_bodies(
    fusion: Fusion, rewrite: RewriteFn
) -> tuple[tuple[Fusion, ...], ...]:
    pairs = zip(fusion.bodies, fusion.root.bodies, strict=True)
    return tuple(_rewritten(fusions, body, rewrite) for fusions, body in pairs)


class FusedProgram(NamedTuple):
    """The fusions of a program, and its layouts with those of values in bodies."""

    fusions: tuple[Fusion, ...]
    layouts: Layouts


def fuse(program: Program, layouts: Layouts, policy: FusionPolicy) -> FusedProgram:
    """The fusions of a program in the order of their roots, those of bodies included."""
    builder = _Builder(program, layouts, policy)
    return FusedProgram(builder.fusions(), builder.layouts)


class _Builder:
    """State of one walk over the ops of a program.

    layouts: so far; bodies of control flow add to them.
    links: by value with one consumer, which fuses it whatever that takes, its producer.
        They are many: what they depend on is only looked at from the end of a chain.
    fused: by other value that consumers may compute, the producers that takes.
    consumers: the consumers of such a value that do; all of them if it is not here.
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
        self.slices_by_device = SLICE_OF_DEVICE in {op.kind for op in program.ops}

    def fusions(self) -> tuple[Fusion, ...]:
        """One fusion for each op that writes or has an effect.

        Producers come before consumers, so that one walk decides on all values.
        """
        found: list[Fusion] = []
        within = set(self.links.values())
        for op, kind in self.flow.kinds.items():
            if op in within:
                continue
            producers = self._producers(op)
            stored = self._decide(op, kind, producers)
            if op.bodies:
                found += self._casts(op)
            is_bitcast = has_trait(op.kind, Trait.ALIASES_OPERAND)
            if (stored or op.has_effect) and not is_bitcast:
                found.append(self._fusion(op, kind, producers, stored))
        return tuple(found)

    def _decide(
        self, op: Op, kind: FusionKind, producers: FusedProducers
    ) -> tuple[Value, ...]:
        """The results of an op that are stored; records which ones consumers compute."""
        stored: list[Value] = []
        decisions = self.policy.decide(op, kind, producers, self.flow, self.layouts)
        for value, decision in zip(op.results, decisions, strict=True):
            if decision.is_fused:
                self.fused[value] = producers.with_op(op, work_of(op))
                if decision.consumers is not None:
                    self.consumers[value] = decision.consumers
            if decision.is_stored:
                stored.append(value)
        return tuple(stored)

    def _casts(self, op: Op) -> list[Fusion]:
        """Casts of operands that a loop is the first to read as bfloat16."""
        found: list[Fusion] = []
        for value in self.flow.operands[op]:
            cast = self.flow.casts.get(value)
            if cast is not None and value not in self.emitted_casts:
                self.emitted_casts.add(value)
                (operand,) = self.flow.operands[cast]
                producers = FusedProducers({}, {operand: None})
                found.append(
                    self._fusion(cast, FusionKind.LOOP, producers, cast.results)
                )
        return found

    def _producers(self, op: Op) -> FusedProducers:
        """The producers that an op computes itself, and the values that it reads."""
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
        """The producers that `op` computes for a value; `None` if it reads the value."""
        fused = self.fused.get(value)
        if fused is None or (
            value in self.consumers and op not in self.consumers[value]
        ):
            return None
        return fused

    def _fusion(
        self,
        op: Op,
        kind: FusionKind,
        producers: FusedProducers,
        writes: tuple[Value, ...],
    ) -> Fusion:
        flow, policy = self.flow, self.policy
        bodies = self._bodies(op) if op.bodies else ()
        shares: dict[Value, float] = {}
        if self.slices_by_device:
            shares = producers.shares(op, flow.operands)
        reads, work = tuple(producers.reads), producers.work_with(work_of(op), shares)
        parts = {v: s for v in reads if (s := shares.get(v, 1.0)) < 1} if shares else {}
        return Fusion(
            op, kind, reads, writes, work, updated_operand(op, kind, reads, flow),
            bodies,
            overwrites=policy.aliased_operands(op, kind, producers, flow),
            replaces=policy.carried_operands(op, flow) if op.bodies else {},
            shares=parts,
            sides=self._sides(op),
        )  # fmt: skip

    def _bodies(self, op: Op) -> tuple[tuple[Fusion, ...], ...]:
        """The fusions of an op's bodies; their values are added to the layouts."""
        policy, fused = self.policy, {*self.fused, *self.links}
        self.layouts = layouts_in_bodies(
            op, self.layouts, fused, policy.stack_outputs, policy.slice_readers
        )
        bodies: list[tuple[Fusion, ...]] = []
        for body in op.bodies:
            fusions, self.layouts = fuse(body, self.layouts, policy)
            bodies.append(fusions)
        return tuple(bodies)

    def _sides(self, op: Op) -> tuple[tuple[Value, ...], ...]:
        """By operand of a matrix product, the stored values it is computed from."""
        if op.kind != "dot_general" or not uses_matrix_unit(op):
            return ()
        sides = [(v, self._fused_for(op, v)) for v in self.flow.operands[op][:2]]
        return tuple([(v,) if fed is None else tuple(fed.reads) for v, fed in sides])
