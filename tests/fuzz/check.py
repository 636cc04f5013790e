"""The check of a case: the partitioned program must give the original's results.

Rounding errors depend on the program. If terms of an output cancel, a change in the last
bit of an input changes the output as much as another order of summation does. An output
that exceeds `check`'s tolerance is therefore compared with its change under slightly
perturbed inputs.
"""

from __future__ import annotations

import traceback
from collections import Counter
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import meshwright as mw
from meshwright.app.check.compare_outputs import compare
from tests.fuzz.case import Case
from tests.partitioner.lower.verifier import verify_lowered
from tests.program.ir.verifier import verify

NUDGES = 3
NUDGE, LEEWAY = 1e-6, 40.0  # relative, and times what such a nudge does
LOW_NUDGE, LOW_LEEWAY = 4e-3, 10.0  # the same where 16-bit floats occur
FINER = 4.0  # times what the original is off itself, where they do


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a case.

    verdict: "equal", "ill-conditioned" (equal within what nudged inputs do), "refused"
        (an error of our own), "wrong", "crash", "traced" (not run), or "miscompiled"
        (the original differs from itself run op by op, which the partitioned equals).
    kinds: ops of the program. counts: collectives by kind. detail: what went wrong.
    """

    verdict: str
    detail: str = ""
    kinds: frozenset[str] = frozenset()
    counts: tuple[tuple[str, int], ...] = ()
    num_cut: int = 0
    num_ops: int = 0

    @property
    def is_failure(self) -> bool:
        """Whether the result was wrong, or the error was not one of Meshwright's."""
        return self.verdict in ("wrong", "crash")


def run_case(case: Case) -> Outcome:
    """Partition, run both programs and compare; a failure is an outcome, not an error."""
    args = case.args()
    original = jax.jit(case.fn())
    wanted = jax.tree.leaves(original(*args))
    try:
        step = case.partitioned()
        decided = check_structure(step, args)
        got = jax.tree.leaves(step(*args))
    except mw.MeshwrightError as error:
        return Outcome("refused", f"{type(error).__name__}: {error}")
    except Exception as error:  # noqa: BLE001
        return crash(error)
    errors = [
        compare(p, w, g)
        for p, w, g in zip(decided.captured.out_paths, wanted, got, strict=True)
    ]
    found = _facts(decided)
    if all(e.ok for e in errors):
        return Outcome("equal", **found)
    moves = _moves(case, original, wanted)
    off = [
        (_is_explained(w, g, m), f"{e} may move {m:.1e} of {_distance(w, 0 * w):.1e}")
        for e, w, g, m in zip(errors, wanted, got, moves, strict=True)
        if not e.ok
    ]
    detail = "\n".join(line for _, line in off)
    if all(explained for explained, _ in off):
        return Outcome("ill-conditioned", detail, **found)
    with jax.disable_jit():
        stepwise = jax.tree.leaves(case.fn()(*args))
    agree = all(
        compare("", w, g).ok or _is_explained(w, g, m)
        for w, g, m in zip(map(jnp.asarray, stepwise), got, moves, strict=True)
    )
    return Outcome("miscompiled" if agree else "wrong", detail, **found)


def trace_case(case: Case) -> Outcome:
    """The checks that need no compiler: plan, verify and trace the device program."""
    args = case.args()
    try:
        step = case.partitioned()
        decided = check_structure(step, args)
        jax.eval_shape(step.jitted(*args), *args)
    except mw.MeshwrightError as error:
        return Outcome("refused", f"{type(error).__name__}: {error}")
    except Exception as error:  # noqa: BLE001
        return crash(error)
    return Outcome("traced", **_facts(decided))


def check_structure(step: mw.Partitioned, args: tuple[Any, ...]) -> Any:
    """Verify programs before and after lowering; the plan must survive its JSON."""
    plan = step.plan(*args)
    assert mw.Plan.from_json(plan.to_json()) == plan, "the plan changes on its way"
    str(plan)
    decided = plan.decided
    assert decided is not None
    verify(decided.captured.program)
    verify_lowered(decided.lowered, decided.captured.program)
    return decided


def crash(error: Exception) -> Outcome:
    """The error, and the innermost of our own lines that it passed."""
    rows = traceback.extract_tb(error.__traceback__)
    ours = [f"{r.filename.rpartition('meshwright/')[2]}:{r.lineno}" for r in rows
            if "meshwright/" in r.filename]  # fmt: skip
    where = " ".join(ours[-3:])
    return Outcome("crash", f"{type(error).__name__}: {str(error)[:1200]} [{where}]")


def _facts(decided: Any) -> dict[str, Any]:
    plan = Counter(op.kind for op in decided.lowered.program.walk())
    counts = {k: n for k, n in plan.items() if k in COLLECTIVES}
    ops = list(decided.captured.program.walk())
    state = decided.work.state
    return {
        "kinds": frozenset(op.kind for op in ops),
        "counts": tuple(sorted(counts.items())),
        "num_cut": sum(1 for cut in state.factor_of if cut),
        "num_ops": len(ops),
    }


COLLECTIVES = ("all_gather", "all_reduce", "reduce_scatter", "all_to_all", "permute")


def _moves(case: Case, original: Any, wanted: list[Any]) -> list[float]:
    """The change of each output that rounding may cause, from perturbed inputs.

    Where 16-bit floats occur, also from the same computed with 32-bit ones.
    """
    rng = np.random.default_rng(case.seed + 1)
    is_low = case.program.is_low_precision
    size, leeway = (LOW_NUDGE, LOW_LEEWAY) if is_low else (NUDGE, LEEWAY)

    def nudged(x: Any) -> Any:
        if not is_real(x):
            return x
        factor = 1 + size * rng.uniform(-1, 1, x.shape)
        return np.asarray(x * factor).astype(x.dtype)

    others = [original(*jax.tree.map(nudged, case.args())) for _ in range(NUDGES)]
    moves = [
        leeway * max(map(_distance, ws, repeat(w)))
        for w, *ws in zip(wanted, *map(jax.tree.leaves, others), strict=True)
    ]
    if is_low:
        args = jax.tree.map(
            lambda x: x.astype("float32") if is_real(x) else x, case.args()
        )
        finer = jax.tree.leaves(jax.jit(case.finer().fn())(*args))
        off = [FINER * _distance(w, f) for w, f in zip(wanted, finer, strict=True)]
        moves = list(map(max, moves, off))
    return moves


def is_real(x: Any) -> bool:
    """True for floats of NumPy."""
    return isinstance(x, np.ndarray | np.generic) and jnp.issubdtype(
        x.dtype, jnp.floating
    )


def _is_explained(wanted: Any, got: Any, move: float) -> bool:
    return wanted.shape == got.shape and _distance(wanted, got) <= move


def _distance(a: Any, b: Any) -> float:
    """The largest absolute difference; infinite where only one is finite."""
    x, y = (
        np.asarray(v, np.complex128 if jnp.iscomplexobj(v) else np.float64)
        for v in (a, b)
    )
    same = (x == y) | (np.isnan(x) & np.isnan(y))
    difference = np.abs(np.where(same, 0, x - np.where(same, x, y)))
    worst = float(np.max(difference, initial=0.0))
    return float("inf") if np.isnan(worst) else worst
