"""Residuals: what a forward pass saves for its backward pass, as a list to read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from meshwright.program.ir import Atom, Op, Program, Value, num_bytes, show_type


@dataclass(frozen=True, slots=True)
class Residual:
    """One value that a backward pass reads from the forward pass.

    name: the path of an input, or the op that computes the value: `mlp.py:7 dot_general`.
    num_bytes: without padding; of all iterations, if a loop stacks the value.
    source: `file:line` of the user's code that computes it, "" for an input.
    is_input: the value is an argument, so that saving it takes no memory of its own.
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
    """Residuals of a program, the largest first, inputs last.

    program: computes the values. paths: names of its inputs.
    A value that a loop stacks or a branch returns is named after the op inside.
    """
    named = dict(zip(program.inputs, paths, strict=False))
    makers = _makers(program)
    found = [_residual(value, named.get(value), makers.get(value)) for value in values]
    return tuple(sorted(found, key=lambda r: (r.is_input, -r.num_bytes)))


def _makers(program: Program) -> dict[Atom, Op]:
    """The op that computes each value; for results of region ops, the op inside."""
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
