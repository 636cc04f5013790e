"""A model without loops over layers: each iteration is written out, with its own weights.

So one layer of a scan can be replaced, and the others kept. A stacked weight that only
scans read becomes one weight per iteration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp

from meshwright.errors import CaptureError
from meshwright.program.ir import Atom, Literal, Op, Program, Value
from meshwright.run.local.execute import run_program

_UNROLLED = ("scan", "remat")


def has_loops(program: Program) -> bool:
    """Whether `run_unrolled` writes anything out; `CaptureError` for other regions."""
    for op in program.ops:
        if op.bodies and op.kind not in _UNROLLED:
            what = f"the model has a `{op.kind}` ({op.source})"
            raise CaptureError(f"{what}; only scans and checkpoints can be rewritten")
    return any(op.bodies for op in program.ops)


def stacked_lengths(program: Program) -> Mapping[Value, int]:
    """The iterations of inputs that only scans read, one element per iteration."""
    lengths: dict[Value, int] = {}
    others: set[Atom] = set(program.outputs)
    for op in program.ops:
        for i, operand in enumerate(op.operands):
            wire = next((w for w in op.wires if w.operand == i), None)
            if op.kind == "scan" and wire is not None and wire.is_stacked:
                lengths[operand] = operand.shape[0]  # pyright: ignore[reportArgumentType]
            else:
                others.add(operand)
    return {v: lengths[v] for v in program.inputs if v in lengths and v not in others}


def run_unrolled(program: Program, inputs: Sequence[Any]) -> list[Any]:
    """The outputs of a program, with its scans as Python loops.

    Inputs of `stacked_lengths` may be lists, one array per iteration.
    """
    env: dict[Atom, Any] = {
        **dict(zip(program.inputs, inputs, strict=True)),
        **program.constants,
    }

    def read(atom: Atom) -> Any:
        is_literal = isinstance(atom, Literal)
        return jnp.asarray(atom.value, dtype=atom.dtype) if is_literal else env[atom]

    for op in program.ops:
        run = _RUN.get(op.kind, _run_plain)
        results = run(op, [read(a) for a in op.operands])
        env.update(zip(op.results, results, strict=True))
    return [read(a) for a in program.outputs]


def _run_plain(op: Op, operands: list[Any]) -> list[Any]:
    """One op, on operands that are distinct inputs of a program of its own."""
    inputs = tuple(Value(a.shape, a.dtype) for a in op.operands)
    alone = Op(
        op.kind,
        tuple(
            a if isinstance(a, Literal) else v
            for a, v in zip(op.operands, inputs, strict=True)
        ),
        op.results,
        op.params,
        source=op.source,
        primitive=op.primitive,
    )
    return run_program(Program(inputs, (alone,), op.results), operands)


def _run_remat(op: Op, operands: list[Any]) -> list[Any]:
    (body,) = op.bodies
    given: list[Any] = [None] * len(body.inputs)
    for wire in op.wires:
        for _, at in wire.inputs:
            assert wire.operand is not None, "what enters a checkpoint is an operand"
            given[at] = operands[wire.operand]
    outputs = run_unrolled(body, given)
    results: list[Any] = [None] * len(op.results)
    for wire in op.wires:
        if wire.result is not None:
            results[wire.result] = outputs[wire.outputs[0][1]]
    return results


def _run_scan(op: Op, operands: list[Any]) -> list[Any]:
    (body,) = op.bodies
    length: Any = op.params["length"]
    order = reversed(range(length)) if op.params["reverse"] else range(length)
    carried = {w: operands[w.operand] for w in op.wires if w.inputs and w.outputs}  # pyright: ignore[reportArgumentType, reportCallIssue]
    stacks: dict[int, dict[int, Any]] = {}
    for i in order:
        given: list[Any] = [None] * len(body.inputs)
        for wire in op.wires:
            for _, at in wire.inputs:
                value = carried[wire] if wire in carried else operands[wire.operand]  # pyright: ignore[reportArgumentType, reportCallIssue]
                given[at] = value[i] if wire.is_stacked else value
        outputs = run_unrolled(body, given)
        for wire in op.wires:
            if wire in carried:
                carried[wire] = outputs[wire.outputs[0][1]]
            elif wire.outputs and wire.result is not None:
                stacks.setdefault(wire.result, {})[i] = outputs[wire.outputs[0][1]]
    results: list[Any] = [None] * len(op.results)
    for wire, value in carried.items():
        if wire.result is not None:
            results[wire.result] = value
    for at, parts in stacks.items():
        results[at] = jnp.stack([parts[i] for i in range(length)])
    return results


_RUN: Mapping[str, Callable[[Op, list[Any]], list[Any]]] = {
    "scan": _run_scan,
    "remat": _run_remat,
}
