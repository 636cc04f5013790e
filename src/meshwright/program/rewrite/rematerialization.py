"""Rematerialization: values are computed a second time rather than kept in memory.

A training step computes values in its forward pass and reads some of them in its
backward pass (JAX calls these residuals). A residual that is not to be kept is computed
again just before its first reader in the backward pass, from the values that are kept.
An optimization barrier stands before the second computation: without it, a compiler
would merge it with the first (XLA: `HloCSE`). If a scan of the forward pass stacks
values for a scan of the backward pass, the backward scan computes them again itself,
iteration by iteration.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial

from meshwright.program.analysis.live_ranges import (
    BufferInterval,
    live_bytes,
    live_ranges,
)
from meshwright.program.ir import Atom, Op, Program, Value, num_bytes
from meshwright.program.rewrite.dead_code import eliminate_dead_code
from meshwright.program.rewrite.recomputation import Recomputation, behind_barrier
from meshwright.program.rewrite.scan_editor import ScanEditor


def backward_start(program: Program) -> int:
    """The index of the first op of the backward pass.

    It is taken to be the position at which most bytes of ops' results are live. The
    program's inputs do not count, since they are live throughout.
    """
    end = len(program.ops)
    ranges = live_ranges((op.operands, op.results) for op in program.ops)
    last = {**ranges.last_uses, **dict.fromkeys(program.outputs, end)}
    # A result is live at all positions after its op, up to its last reader.
    live = live_bytes(
        (
            BufferInterval(num_bytes(value), index + 1, last.get(value, index))
            for value, index in ranges.definitions.items()
        ),
        end + 1,
    )
    return max(range(end + 1), key=live.__getitem__)


def residuals(program: Program, start: int) -> tuple[Value, ...]:
    """The results of the first `start` ops that later ops read, in program order."""
    read = {a for op in program.ops[start:] for a in op.operands}
    return tuple(r for op in program.ops[:start] for r in op.results if r in read)


def rematerialize(program: Program, keep: Collection[Value], start: int) -> Program:
    """The program that computes its residuals a second time, except those in `keep`.

    keep: values of the program and of its loops' bodies; a value of a body is kept for
        all iterations. Results of ops with effects and of loops are always kept, except
        arrays that a scan stacks and a later scan reads iteration by iteration.
    start: index of the first op of the backward pass.
    Law: the result computes the same.
    """
    program = rematerialize_scans(program, keep, start)
    ops = [*program.ops[:start]]
    kept = with_transposes(program.ops[:start], keep)
    second = Recomputation(program.ops[:start], kept, behind_barrier)
    for op in program.ops[start:]:
        operands: list[Atom] = []
        for operand in op.operands:
            ops += second.ops_for(operand)
            operands.append(second.copies.get(operand, operand))
        changed = operands != [*op.operands]
        ops.append(replace(op, operands=tuple(operands)) if changed else op)
    return eliminate_dead_code(replace(program, ops=tuple(ops)))


def with_transposes(ops: Iterable[Op], keep: Collection[Value]) -> set[Value]:
    """The kept values and their transposes, which take no memory of their own.

    XLA stores the operand of an optimization barrier in its default layout. If the
    barrier stood before the transpose, both layouts of the value would be in memory.
    """
    kept = set(keep)
    for op in ops:
        if op.kind == "transpose" and op.operands[0] in kept:
            kept.update(op.results)
    return kept


def rematerialize_scans(
    program: Program, keep: Collection[Value], start: int
) -> Program:
    """The program whose backward scans recompute values that forward scans stack.

    Forward scans run before op `start`, backward scans from there on. A backward scan
    of as many iterations as a forward one computes the stacked values again, iteration
    by iteration, from values that are kept: values of the forward body that are in
    `keep`, its carries (which are stacked for this), and the operands of the forward
    scan. Arrays that nobody reads afterwards are left for dead code elimination.

    keep: values of bodies to keep, and stacked values that stay as they are.
    """
    ops = [*program.ops]
    scans = [index for index, op in enumerate(ops) if op.kind == "scan"]
    for after in (index for index in scans if index >= start):
        for before in (index for index in scans if index < start):
            if _are_a_pair(ops[before], ops[after]):
                ops[before], ops[after] = _rematerialized(ops[before], ops[after], keep)
    return replace(program, ops=tuple(ops))


def stacked_residuals(first: Op, second: Op) -> Mapping[Value, Value]:
    """The values that one scan stacks and another reads in the same iteration.

    Keyed by the input of the second scan's body that receives the value; each entry is
    the value in the first scan's body.
    """
    if not _are_a_pair(first, second):
        return {}
    stacked = {
        first.results[wire.result]: first.bodies[0].outputs[wire.outputs[0][1]]
        for wire in first.wires
        if wire.is_stacked and wire.outputs and wire.result is not None
    }
    found: dict[Value, Value] = {}
    for wire in second.wires:
        if wire.is_stacked and wire.inputs and wire.operand is not None:
            value = stacked.get(second.operands[wire.operand])  # pyright: ignore[reportArgumentType]
            if isinstance(value, Value):
                found[second.bodies[0].inputs[wire.inputs[0][1]]] = value
    return found


def _are_a_pair(first: Op, second: Op) -> bool:
    if first.kind != "scan" or second.kind != "scan":
        return False
    return first.params["length"] == second.params["length"]


def _rematerialized(first: Op, second: Op, keep: Collection[Value]) -> tuple[Op, Op]:
    """Both scans, rewritten so that the second recomputes values for itself.

    The first scan stacks only the values that are kept.
    """
    forward, backward = ScanEditor(first), ScanEditor(second)
    fetch = partial(_fetch, forward, backward)
    recomputed = Recomputation(first.bodies[0].ops, keep, fetch)
    kept = {
        first.bodies[0].outputs[wire.outputs[0][1]]
        for wire in first.wires
        if wire.result is not None and wire.is_stacked
        if first.results[wire.result] in keep
    }
    replaced = {
        inner: value
        for inner, value in stacked_residuals(first, second).items()
        if recomputed.can_recompute(value) and value not in kept
    }
    if not replaced:
        return first, second
    ops: list[Op] = []

    def substitute(atom: Atom) -> Atom:
        value = replaced.get(atom)  # pyright: ignore[reportArgumentType]
        if value is None:
            return atom
        ops.extend(recomputed.ops_for(value))
        return recomputed.copies[value]

    body = second.bodies[0]
    for op in body.ops:
        operands = tuple(map(substitute, op.operands))
        ops.append(replace(op, operands=operands))
    outputs = tuple(map(substitute, body.outputs))
    return forward.op(), backward.op(ops, outputs)


def _fetch(
    forward: ScanEditor, backward: ScanEditor, value: Value
) -> tuple[Value, tuple[Op, ...]]:
    """A value of the forward body as an input of the backward body, and no ops.

    The value gets a path (`ir.Wire`) into the backward scan and, if it has none yet,
    one out of the forward scan, which stacks it.
    """
    wire = forward.wire_into(value)
    if value in forward.constants:
        copy = Value(value.shape, value.dtype)
        backward.constants[copy] = forward.constants[value]
    elif wire is None or wire.outputs:
        copy = backward.read(forward.stack(value), is_stacked=True)
    else:
        assert wire.operand is not None
        copy = backward.read(forward.operands[wire.operand], wire.is_stacked)
    return copy, ()
