"""Residuals: a readable list of what a forward pass saves for its backward pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from meshwright.program.ir import Atom, Op, Program, Value, num_bytes, show_type


@dataclass(frozen=True, slots=True)
class Residual:
    """One value that the backward pass reads from the forward pass.

    name: the path of an input, or source line and kind of the op that computes the
        value, as in `mlp.py:7 dot_general`.
    num_bytes: bytes without padding. If a loop stacks the value, bytes of all its
        iterations.
    source: `file:line` of the user's code that computes the value; "" for an input.
    is_input: whether the value is an argument of the function, so that saving it costs
        nothing.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    num_bytes: int
    source: str
    is_input: bool

    def __str__(self) -> str:
        kind = "  (an input)" if self.is_input else ""
        type_text = show_type(self.shape, self.dtype)
        return f"{self.num_bytes:>14,} {type_text:24} {self.name}{kind}"


def list_residuals(
    values: Sequence[Value], program: Program, paths: Sequence[str]
) -> tuple[Residual, ...]:
    """The residuals of a program: the largest first, those that are inputs last.

    A value that a loop stacks or a branch returns is named after the op inside that
    computes it.

    program: the program that computes the values. paths: names of its inputs.
    """
    named = dict(zip(program.inputs, paths, strict=False))
    makers = _makers(program)
    found = [_residual(value, named.get(value), makers.get(value)) for value in values]
    return tuple(sorted(found, key=lambda r: (r.is_input, -r.num_bytes)))


def _makers(program: Program) -> dict[Atom, Op]:
    """The op that computes each value; for results of loops, the op inside."""
    makers: dict[Atom, Op] = {}
    for op in program.ops:
        makers.update(dict.fromkeys(op.results, op))
        inner = [_makers(body) for body in op.bodies]
        for wire in op.wires:
            for body, position in wire.outputs:
                maker = inner[body].get(op.bodies[body].outputs[position])
                if wire.result is not None and maker is not None:
                    makers[op.results[wire.result]] = maker
    return makers


def _residual(value: Value, path: str | None, op: Op | None) -> Residual:
    source = "" if op is None else str(op.source)
    name = path if path is not None else f"{source} {op.kind if op else ''}".strip()
    return Residual(
        name, value.dtype, value.shape, num_bytes(value), source, path is not None
    )
