"""Outputs of the partitioned program compared with those of the original."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from meshwright.jax_private import is_key
from meshwright.run.local import Executable


@dataclasses.dataclass(frozen=True, slots=True)
class OutputError:
    """The error of one output of the partitioned program.

    error: largest absolute difference, divided by the output's scale (its largest finite
        absolute value, or 1 if that is 0); for integers, bools and keys the share of
        elements that differ.
    tolerance: the largest error that rounding explains at this dtype.
    sensitivity: the error of the original itself if its inputs change by one unit in the
        last place; measured only if some output exceeds the tolerance of its dtype.
    """

    path: str
    dtype: str
    shape: tuple[int, ...]
    error: float
    tolerance: float
    sensitivity: float | None = None

    @property
    def ok(self) -> bool:
        """True if the error is within the tolerance; an error of NaN is not."""
        return self.error <= self.tolerance

    @property
    def is_ill_conditioned(self) -> bool:
        """True if the tolerance comes from the sensitivity, not from the dtype."""
        return self.tolerance > tolerance_of(self.dtype)

    def __str__(self) -> str:
        verdict = "ok" if self.ok else "WRONG"
        note = "  ill-conditioned" if self.is_ill_conditioned else ""
        limit = f"(<= {self.tolerance:.0e})"
        return f"{verdict:5}  {self.error:9.2e}  {limit}  {self.path}{note}"


@dataclasses.dataclass(frozen=True, slots=True)
class CheckReport:
    """The error of every output."""

    outputs: tuple[OutputError, ...]

    @property
    def ok(self) -> bool:
        """True if no output differs by more than rounding explains."""
        return all(output.ok for output in self.outputs)

    @property
    def worst(self) -> float:
        """The largest error of all outputs."""
        return max((o.error for o in self.outputs), default=0.0)

    @property
    def summary(self) -> str:
        """Verdict, count and largest error; a second line for ill-conditioned outputs."""
        text = f"{'equal' if self.ok else 'NOT EQUAL'}: {len(self.outputs)} outputs"
        ill_conditioned = [o.error for o in self.outputs if o.is_ill_conditioned]
        if not ill_conditioned:
            return f"{text}, largest error {self.worst:.2e}"
        rest = [o.error for o in self.outputs if not o.is_ill_conditioned]
        if rest:
            text += f", largest error {max(rest):.2e} among {len(rest)} of them"
        return (
            f"{text}\n{len(ill_conditioned)} are ill-conditioned, "
            f"largest error {max(ill_conditioned):.2e}; "
            "their tolerance is how far rounded inputs move them on one device"
        )

    def __str__(self) -> str:
        return "\n".join([*map(str, self.outputs), self.summary])

    def to_json(self) -> dict[str, Any]:
        """Plain data for `json.dumps`."""
        rows = [{**dataclasses.asdict(o), "ok": o.ok} for o in self.outputs]
        return {"ok": self.ok, "worst": self.worst, "outputs": rows}


TOLERANCES = {
    "float64": 1e-9, "complex128": 1e-9, "float32": 2e-4, "complex64": 2e-4,
    "bfloat16": 3e-2, "float16": 3e-2,
}  # fmt: skip
"""Tolerances by dtype; 8-bit floats have 0.3, integers and bools 0.
Sums in another order differ by some units in the last place, and deep programs amplify
the difference."""


def tolerance_of(dtype: str) -> float:
    """The largest error that another order of summation may cause at this dtype."""
    return TOLERANCES.get(dtype, 0.3 if dtype.startswith("float") else 0.0)


def check_outputs(
    paths: Sequence[str],
    original: Callable[..., Any],
    partitioned: Executable,
    leaves: Sequence[Any],
) -> CheckReport:
    """The errors of the partitioned program on these leaves; wrong numbers do not raise."""
    run = jax.jit(original)
    alone = [on_one_device(leaf) for leaf in leaves]
    wanted = run(*alone)
    got = partitioned(leaves)
    errors = [compare(p, w, g) for p, w, g in zip(paths, wanted, got, strict=True)]
    if not all(error.ok for error in errors):
        errors = _conditioned(errors, run, alone, wanted)
    return CheckReport(tuple(errors))


def on_one_device(leaf: Any) -> Any:
    """The leaf as an array on one device, whatever its sharding is."""
    if not isinstance(leaf, jax.Array) or not leaf.is_fully_addressable:
        return leaf
    if len(leaf.sharding.device_set) == 1:
        return leaf
    if is_key(leaf.dtype):
        words = jnp.asarray(np.asarray(jax.random.key_data(leaf)))
        return jax.random.wrap_key_data(words, impl=jax.random.key_impl(leaf))
    return jnp.asarray(np.asarray(leaf))  # uncommitted, as a shard_map inside wants


def _conditioned(
    errors: Sequence[OutputError],
    run: Callable[..., Any],
    leaves: Sequence[Any],
    wanted: Sequence[Any],
) -> list[OutputError]:
    """The errors with tolerances that allow for the effect of rounded inputs.

    Some outputs are ill-conditioned: Adam's first step divides a gradient that is zero
    except for rounding by its own size. Such outputs change as much if the inputs of the
    original change by a unit in the last place, which is measured here.
    """
    moves = [0.0] * len(errors)
    for seed in range(NUM_NUDGES):
        nudged = run(*_nudge(leaves, seed))
        for i, (error, w, n) in enumerate(zip(errors, wanted, nudged, strict=True)):
            moves[i] = max(moves[i], compare(error.path, w, n).error)
    return [
        dataclasses.replace(e, sensitivity=m, tolerance=max(e.tolerance, ALLOWANCE * m))
        for e, m in zip(errors, moves, strict=True)
    ]


NUM_NUDGES = 3
ALLOWANCE = 4.0
"""Ratio of the effect of rounding inside a program to that of rounding its inputs."""


def _nudge(leaves: Sequence[Any], seed: int) -> list[Any]:
    """The leaves with every float moved by at most one unit in the last place."""
    rng = np.random.default_rng(seed)

    def move(leaf: Any) -> Any:
        dtype = getattr(leaf, "dtype", None)
        if dtype is None or not jnp.issubdtype(dtype, jnp.floating):
            return leaf
        noise = rng.uniform(-1, 1, leaf.shape) * float(jnp.finfo(dtype).eps)
        return (np.asarray(leaf, np.float64) * (1 + noise)).astype(dtype)

    return [move(leaf) for leaf in leaves]


def compare(path: str, wanted: Any, got: Any) -> OutputError:
    """The error of the output `got` where `wanted` is right."""
    dtype = str(wanted.dtype)
    if is_key(wanted.dtype):
        wanted, got = jax.random.key_data(wanted), jax.random.key_data(got)
    error = _error(_host(wanted), _host(got))
    return OutputError(path, dtype, tuple(wanted.shape), error, tolerance_of(dtype))


def _host(x: Any) -> np.ndarray:
    x = jnp.asarray(x)
    if jnp.issubdtype(x.dtype, jnp.floating) and x.dtype.itemsize < 4:
        x = x.astype(jnp.float32)
    return np.asarray(x)


def _error(wanted: np.ndarray, got: np.ndarray) -> float:
    """The error relative to the scale of `wanted`; equal infinities and two NaNs agree."""
    if wanted.shape != got.shape:
        return float("inf")
    if not wanted.size:
        return 0.0
    if not np.issubdtype(wanted.dtype, np.inexact):
        return float(np.mean(wanted != got))
    agree = (wanted == got) | (np.isnan(wanted) & np.isnan(got))
    finite = np.isfinite(wanted)
    if np.any(~agree & (~finite | ~np.isfinite(got))):
        return float("inf")
    scale = float(np.max(np.abs(wanted[finite]), initial=0.0)) or 1.0
    rest = ~agree
    return float(np.max(np.abs(wanted[rest] - got[rest]), initial=0.0)) / scale
