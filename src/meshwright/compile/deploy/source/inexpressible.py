"""Refusals: what a target cannot express, with the user's source lines."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from meshwright.errors import DeployError
from meshwright.program.ir import Literal, Op, Program, Value, show_type

_MOST_NAMED = 5


class Inexpressible(Exception):
    """A target has nothing for an op; the text says why."""


def refuse(target: str, found: Iterable[tuple[Op, str]], hint: str) -> DeployError:
    """The error that names ops, their types and source lines, and what to do."""
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
    """Ops that fail when each is a program of its own, with the reason of the failure.

    try_fn: raises `Inexpressible` for a program that the target does not take. Ops that
    are equal in kind, types and parameters are tried once.
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
    """A program of one op, whose operands are its inputs."""
    inputs = dict.fromkeys(a for a in op.operands if not isinstance(a, Literal))
    values = tuple(v for v in inputs if isinstance(v, Value))
    return Program(values, (op,), op.results)
