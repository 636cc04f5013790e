"""Residuals: what a forward pass saves for its backward pass, as a list to read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from meshwright.program.ir import Op, Program, Value, num_bytes, show_type


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
        return f"{self.num_bytes:>14,} {show_type(self.shape, self.dtype):24} {self.name}{kind}"


def list_residuals(
    values: Sequence[Value],
    program: Program,
    paths: Sequence[str],
    makers: Mapping[Value, Op],
) -> tuple[Residual, ...]:
    """Residuals of a program, the largest first.

    program: computes the values. paths: names of its inputs.
    makers: the op that computes a value, where the program itself only has a loop for it.
    """
    named = dict(zip(program.inputs, paths, strict=False))
    producers = {r: op for op in program.ops for r in op.results}
    found = [
        _residual(v, named.get(v), makers.get(v) or producers.get(v)) for v in values
    ]
    return tuple(sorted(found, key=lambda r: (r.is_input, -r.num_bytes)))


def _residual(value: Value, path: str | None, op: Op | None) -> Residual:
    source = "" if op is None else str(op.source)
    name = path if path is not None else f"{source} {op.kind if op else ''}".strip()
    return Residual(
        name, value.dtype, value.shape, num_bytes(value), source, path is not None
    )
