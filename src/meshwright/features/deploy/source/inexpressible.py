"""Refusals: errors for what a target cannot express, with the user's source lines."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from meshwright.errors import CompilerError, DeployError
from meshwright.program.ir import Literal, Op, Program, Value, show_type

_MOST_NAMED = 5


_HINT = "Write the program without these ops, or use the target iree-cpu."

_OF_LAPACK = frozenset(
    {
        "cholesky", "cholesky_update", "eig", "eigh", "geqp3", "geqrf", "hessenberg",
        "householder_product", "lu", "lu_pivots_to_permutation", "ormqr", "qr", "schur",
        "svd", "triangular_solve", "tridiagonal", "tridiagonal_solve",
    }
)  # fmt: skip
"""Ops that JAX computes by a library of linear algebra, which no target has."""

_LAPACK_HINT = (
    "No target has the factorizations and solvers of linear algebra, which JAX computes by "
    "LAPACK. Compute them before, and give their results to the function, or write them "
    "with products and loops."
)


class Inexpressible(Exception):
    """Raised by a converter for an op that its target lacks.

    reason: why, as a phrase. op: the op, if the converter knows it.
    """

    def __init__(self, reason: str, op: Op | None = None) -> None:
        super().__init__(reason)
        self.op = op


def refusal(
    target: str,
    program: Program,
    failure: Inexpressible,
    try_fn: Callable[[Program], object],
) -> DeployError:
    """The error for a program that a target cannot express.

    try_fn: as for `probe_ops`, which finds the ops if `failure` names none.
    """
    ops = [] if failure.op is None else [(failure.op, str(failure))]
    ops = ops or probe_ops(program, try_fn) or [(program.ops[-1], str(failure))]
    return refuse(target, ops)


def refusal_by_iree(
    target: str,
    program: Program,
    failure: CompilerError,
    try_fn: Callable[[Program], object],
) -> DeployError | CompilerError:
    """The error for a program that IREE cannot compile, which names the ops if possible."""
    ops = probe_ops(program, try_fn, most=100)
    hint = f"IREE's message for the whole program: {failure}"
    return refuse(target, ops, hint) if ops else failure


def refuse(
    target: str, ops: Iterable[tuple[Op, str]], hint: str = _HINT
) -> DeployError:
    """The error that names ops with types, source lines and reasons, and a way out.

    hint: the sentence that says what to do instead.
    """
    ops = list(ops)
    rows: dict[str, None] = {}
    for op, why in ops:
        kinds = ", ".join(show_type(a.shape, a.dtype) for a in op.operands)
        place = str(op.source) or "an unknown line"
        rows[f"`{op.kind}` of {kinds or 'nothing'} at {place}: {why}"] = None
    named = list(rows)[:_MOST_NAMED]
    more = f"\n  and {len(rows) - len(named)} more" if len(rows) > len(named) else ""
    lines = "".join(f"\n  {row}" for row in named)
    from_lapack = [op.kind in _OF_LAPACK for op, _ in ops]
    if any(from_lapack):
        hint = _LAPACK_HINT if all(from_lapack) else f"{hint} {_LAPACK_HINT}"
    return DeployError(f"{target} cannot express{lines}{more}\n{hint}")


def probe_ops(
    program: Program, try_fn: Callable[[Program], object], most: int = 200
) -> list[tuple[Op, str]]:
    """The ops that a target refuses when each is converted alone, with the reasons.

    try_fn: converts a program, and raises `Inexpressible` or `CompilerError` if the target
        refuses it. Ops with the same kind, types and parameters are tried once.
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


def _verdict(program: Program, try_fn: Callable[[Program], object]) -> str:
    try:
        try_fn(program)
    except (Inexpressible, CompilerError) as reason:
        return str(reason) or "the converter refuses it"
    return ""


def _alone(op: Op) -> Program:
    """A program that consists of one op, whose operands are the inputs."""
    inputs = dict.fromkeys(a for a in op.operands if not isinstance(a, Literal))
    values = tuple(v for v in inputs if isinstance(v, Value))
    return Program(values, (op,), op.results)
