"""Refusals: errors for what a target cannot express, with the user's source lines."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from meshwright.errors import DeployError
from meshwright.program.ir import Literal, Op, Program, Value, show_type

_MOST_NAMED = 5


class Inexpressible(Exception):
    """Raised by a converter for an op that its target lacks; the text is the reason."""


def refuse(target: str, found: Iterable[tuple[Op, str]], hint: str) -> DeployError:
    """The error that names ops with types, source lines and reasons, and a way out.

    hint: the sentence that says what to do instead.
    """
    rows: dict[str, None] = {}
    for op, why in found:
        kinds = ", ".join(show_type(a.shape, a.dtype) for a in op.operands)
        place = str(op.source) or "an unknown line"
        rows[f"`{op.kind}` of {kinds or 'nothing'} at {place}: {why}"] = None
    named = list(rows)[:_MOST_NAMED]
    more = f"\n  and {len(rows) - len(named)} more" if len(rows) > len(named) else ""
    lines = "".join(f"\n  {row}" for row in named)
    return DeployError(f"{target} cannot express{lines}{more}\n{hint}")


def probe_ops(
    program: Program, try_fn: Callable[[Program], None], most: int = 200
) -> list[tuple[Op, str]]:
    """The ops that a target refuses when each is converted alone, with the reasons.

    try_fn: converts a program, and raises `Inexpressible` if the target refuses it. Ops
        with the same kind, types and parameters are tried once.
    """
    verdicts: dict[str, str] = {}
    found: list[tuple[Op, str]] = []
    for op in program.ops:
        alone = _alone(op)
        key = str(alone)
        if key not in verdicts and len(verdicts) < most:
            verdicts[key] = _verdict(alone, try_fn)
        if verdicts.get(key):
            found.append((op, verdicts[key]))
    return found


def _verdict(program: Program, try_fn: Callable[[Program], None]) -> str:
    try:
        try_fn(program)
    except Inexpressible as reason:
        return str(reason) or "the converter refuses it"
    return ""


def _alone(op: Op) -> Program:
    """A program that consists of one op, whose operands are the inputs."""
    inputs = dict.fromkeys(a for a in op.operands if not isinstance(a, Literal))
    values = tuple(v for v in inputs if isinstance(v, Value))
    return Program(values, (op,), op.results)
