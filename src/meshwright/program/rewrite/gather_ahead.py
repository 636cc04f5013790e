"""Loops that gather the weights of their next iteration (prefetch within a scan).

A loop over layers with sharded weights (ZeRO-3, FSDP) gathers a layer's weights before the
first product of the same iteration, which waits for them. The TPU compiler (libtpu 0.0.50)
moves no such gather into the iteration before. Here the loop carries the gathered weights:

    before: scan { %w = all_gather(slice(%ws, i)); %y = dot_general(%x, %w) }
    after:  %w = all_gather(slice(%ws, 0))
            scan { %next = all_gather(slice(%ws, i + 1)); %y = dot_general(%x, %w) }

Loops that run backward gather slice i - 1. The last iteration gathers its own slice once
more, since a branch around a collective would block all streams. One layer's gathered
weights are live beside the current ones.

A loop carries a value in one buffer, so that XLA would copy the gathered weights at the end
of each iteration. The loop is unrolled by two, and a barrier starts a gather only after the
iteration that reads the weights before: two buffers then take turns, and libtpu 0.0.50
copies none.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from meshwright.machine import Mesh
from meshwright.program.ir import Atom, Op, Program, Value
from meshwright.program.ops import COLLECTIVES, Builder
from meshwright.program.rewrite.loop_gathers import (
    LoopGather,
    dependent_carries,
    gathers_of_body,
    stacked_inputs,
)
from meshwright.program.rewrite.scan_editor import ScanEditor

_UNROLL = 2
"""Iterations in one body, so that two buffers take turns to hold gathered weights."""


def gather_ahead(
    program: Program, mesh: Mesh, is_chosen: Callable[[Op], bool]
) -> tuple[Program, dict[Op, Op]]:
    """The program whose loops gather what is chosen one iteration ahead, and the copies.

    The copies are the collectives that were written anew, each with the one before it.
    """
    copies: dict[Op, Op] = {}
    return _rewritten(program, mesh, is_chosen, copies), copies


def _rewritten(
    program: Program, mesh: Mesh, is_chosen: Callable[[Op], bool], copies: dict[Op, Op]
) -> Program:
    ops: list[Op] = []
    for op in program.ops:
        if not op.bodies:
            ops.append(op)
            continue
        found = [g for b in op.bodies for g in gathers_of_body(op, b, is_chosen)]
        bodies = [_rewritten(body, mesh, is_chosen, copies) for body in op.bodies]
        if any(a is not b for a, b in zip(bodies, op.bodies, strict=True)):
            op = replace(op, bodies=tuple(bodies))
        movable = [each for each in found if not each.why_not]
        ops += _Prefetch(op, mesh, copies).ops(movable) if movable else [op]
    is_same = len(ops) == len(program.ops) and all(
        a is b for a, b in zip(ops, program.ops, strict=True)
    )
    return program if is_same else replace(program, ops=tuple(ops))


class _Prefetch:
    """Rewrites one scan so that it carries values that it gathers one iteration ahead."""

    def __init__(self, loop: Op, mesh: Mesh, copies: dict[Op, Op]) -> None:
        self.loop = loop
        self.copies = copies
        (self.body,) = loop.bodies
        self.before = Builder(mesh, source=loop.source)
        self.inside = Builder(mesh, source=loop.source)
        self.scan = ScanEditor(loop)

    def ops(self, gathers: Sequence[LoopGather]) -> list[Op]:
        """The ops that replace the loop: the first gathers, and the loop itself."""
        first, following = self._slices(gathers)
        for each in gathers:
            self._copy(self.before, each.chain, first)
            self._copy(self.inside, each.chain, following)
            (whole,) = each.gather.results
            self.scan.carry(first[whole], whole, following[whole])
        made = {each.gather for each in gathers}
        rest = [op for op in self.body.ops if op not in made]
        loop = self.scan.op([*self.inside.ops, *_needed(rest, self.scan.outputs)])
        params = {**loop.params, "unroll": _UNROLL}
        return [*self.before.ops, replace(loop, params=params)]

    def _slices(
        self, gathers: Sequence[LoopGather]
    ) -> tuple[dict[Atom, Atom], dict[Atom, Atom]]:
        """The first slice and the next one of each stacked input that gathers need."""
        read = {atom for each in gathers for op in each.chain for atom in op.operands}
        length, is_reverse = self.loop.params["length"], self.loop.params["reverse"]
        index = self._next_index(length, bool(is_reverse))
        after = self._carries(gathers)
        first: dict[Atom, Atom] = {}
        following: dict[Atom, Atom] = {}
        start = length - 1 if is_reverse else 0
        for i, operand in stacked_inputs(self.loop).items():
            value = self.body.inputs[i]
            if value not in read:
                continue
            stack = self.loop.operands[operand]
            one = self.before.slice(stack, 0, start, start + 1)
            first[value] = self.before.reshape(one, value.shape)
            whole = self.scan.enter(stack)
            zeros = [self.inside.literal(0, "int32")] * len(value.shape)
            sizes = 1, *value.shape
            one = self.inside.emit(
                "dynamic_slice", (whole, index, *zeros), sizes, value.dtype, sizes=sizes
            )
            one = self.inside.reshape(one, value.shape)
            following[value] = self.inside.fence(one, after)
        for wire in self.loop.wires:  # what does not change is an operand outside
            if wire.operand is not None and not wire.is_stacked and not wire.outputs:
                for _, i in wire.inputs:
                    first[self.body.inputs[i]] = self.loop.operands[wire.operand]
        return first, following

    def _carries(self, gathers: Sequence[LoopGather]) -> list[Value]:
        """The carried values that an iteration computes from the gathered weights."""
        found: dict[Value, None] = {}
        for each in gathers:
            found |= dict.fromkeys(dependent_carries(self.loop, each.gather))
        return list(found)

    def _next_index(self, length: int, is_reverse: bool) -> Value:
        """The number of the next iteration's slice; of the same one in the last."""
        here = self.before.iota((length,), 0)
        if is_reverse:
            there = self.before.binary("max", self.before.binary("sub", here, 1), 0)
        else:
            added = self.before.binary("add", here, 1)
            there = self.before.binary("min", added, length - 1)
        return self.scan.enter(there, is_stacked=True)

    def _copy(
        self, builder: Builder, chain: Sequence[Op], known: dict[Atom, Atom]
    ) -> None:
        """Write the ops of a chain on other slices; `known` gets their results."""
        for op in chain:
            if op.results[0] in known:
                continue
            results = tuple(Value(r.shape, r.dtype) for r in op.results)
            operands = tuple(known.get(atom, atom) for atom in op.operands)
            made = replace(op, operands=operands, results=results)
            builder.ops.append(made)
            known.update(zip(op.results, results, strict=True))
            if op.kind in COLLECTIVES:
                self.copies[made] = op


def _needed(ops: Sequence[Op], outputs: Sequence[Atom]) -> list[Op]:
    """The ops that have an effect, or whose results an output or another of them needs."""
    read, kept = set(outputs), list[Op]()
    for op in reversed(ops):
        if op.has_effect or not read.isdisjoint(op.results):
            read.update(op.operands)
            kept.append(op)
    return kept[::-1]
