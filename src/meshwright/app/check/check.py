"""Outputs of the partitioned program compared with those of the original."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from meshwright.app.output import notebook
from meshwright.app.output.collapse import group_by, index_free, merge
from meshwright.jax_private import is_key
from meshwright.program.ir import show_type


@dataclasses.dataclass(frozen=True, slots=True)
class OutputError:
    """The error of one output of the partitioned program.

    error: largest absolute difference, divided by the output's scale (its largest finite
        absolute value, or 1 if that is 0); for integers, bools and keys the share of
        elements that differ.
    tolerance: the largest error that rounding explains at this dtype.
    sensitivity: the error of the original itself if its inputs change by one unit in the
        last place; measured only if some output exceeds the tolerance of its dtype.
    is_ill_conditioned: the tolerance comes from the sensitivity, not from any dtype.
    bias: by how much the output is too large or too small as a whole, relative to it and
        beyond what chance explains; measured where the tolerance is large.
    wide: the same output with both programs computed in float32; `None` if neither has
        narrower floats.
    """

    path: str
    dtype: str
    shape: tuple[int, ...]
    error: float
    tolerance: float
    sensitivity: float | None = None
    is_ill_conditioned: bool = False
    bias: float = 0.0
    wide: OutputError | None = None

    @property
    def ok(self) -> bool:
        """True if the error is within the tolerance, in float32 too; one of NaN is not."""
        is_equal = self.error <= self.tolerance and self.bias <= MAX_BIAS
        return is_equal and (self.wide is None or self.wide.ok)

    def __str__(self) -> str:
        verdict = "ok" if self.ok else "WRONG"
        note = "  ill-conditioned" if self.is_ill_conditioned else ""
        if self.bias > MAX_BIAS:
            note += f"  off by {self.bias:.1%} as a whole"
        if math.isnan(self.error):
            note += "  all NaN in the original"
        if self.wide is not None:
            note += f"  {self.wide.error:.2e} in float32"
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
        wide = [o.wide.error for o in self.outputs if o.wide is not None]
        in_float32 = f", in float32 {max(wide):.2e}" if wide else ""
        ill_conditioned = [o.error for o in self.outputs if o.is_ill_conditioned]
        if not ill_conditioned:
            return f"{text}, largest error {self.worst:.2e}{in_float32}"
        rest = [o.error for o in self.outputs if not o.is_ill_conditioned]
        if rest:
            text += f", largest error {max(rest):.2e} among {len(rest)} of them"
        text += in_float32
        return (
            f"{text}\n{len(ill_conditioned)} are ill-conditioned, "
            f"largest error {max(ill_conditioned):.2e}; "
            "their tolerance is how far rounded inputs move them on one device"
        )

    def __str__(self) -> str:
        return "\n".join([*map(str, self.outputs), self.summary])

    def rows(self, full: bool = False) -> list[tuple[str, ...]]:
        """Cells of a table, titles first: an output, or those alike up to layers, a row.

        full: a row for each output. A title begins with `>` above a column of numbers.
        """
        has_wide = any(output.wide for output in self.outputs)
        more = (">in float32",) if has_wide else ()
        rows = [("output", "type", ">largest error", ">allowed", *more, "")]
        groups = group_by(
            self.outputs,
            lambda o: (o.path if full else index_free(o.path), o.shape, o.dtype, o.ok),
        )
        for group in groups.values():
            worst = max(group, key=lambda output: (not output.ok, output.error))
            count = f" (x{len(group)})" if len(group) > 1 else ""
            wide = "" if worst.wide is None else f"{worst.wide.error:.1e}"
            rows.append((
                merge([output.path for output in group]) + count,
                show_type(worst.shape, worst.dtype),
                f"{worst.error:.1e}",
                f"{worst.tolerance:.0e}",
                *((wide,) if has_wide else ()),
                "ok" if worst.ok else "WRONG",
            ))  # fmt: skip
        return rows

    def _repr_html_(self) -> str:
        titles, *rows = self.rows()
        return notebook.block(self.summary, notebook.table(titles, rows))

    def to_json(self) -> dict[str, Any]:
        """Plain data for `json.dumps`."""
        rows = [
            {**dataclasses.asdict(o), "wide": o.wide and o.wide.error, "ok": o.ok}
            for o in self.outputs
        ]
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


MAX_BIAS = 2e-3
"""Largest error of an output as a whole, beyond what chance explains."""


def check_outputs(
    paths: Sequence[str],
    original: Callable[..., Any],
    partitioned: Callable[[Sequence[Any]], Sequence[Any]],
    leaves: Sequence[Any],
    rounding: Sequence[float] | None = None,
) -> CheckReport:
    """The errors of the partitioned program on these leaves; wrong numbers do not raise.

    original, partitioned: functions of flat leaves, the second of one sequence of them.
    rounding: by output, the tolerance of the narrowest dtype that it is computed from. It
        counts where the error exceeds the tolerance of the output's own dtype.
    """
    run = jax.jit(original)
    alone = [on_one_device(leaf) for leaf in leaves]
    wanted = run(*alone)
    got = partitioned(leaves)
    errors = [compare(p, w, g) for p, w, g in zip(paths, wanted, got, strict=True)]
    for i, (error, narrowest) in enumerate(zip(errors, rounding or (), strict=False)):
        if not error.ok:
            tolerance = max(error.tolerance, narrowest)
            errors[i] = dataclasses.replace(error, tolerance=tolerance)
    if not all(error.ok for error in errors):
        errors = _conditioned(errors, run, alone, wanted, got)
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
    got: Sequence[Any],
) -> list[OutputError]:
    """The errors with tolerances that allow for the effect of rounded inputs.

    Some outputs are ill-conditioned: Adam's first step divides a gradient that is zero
    except for rounding by its own size. Such outputs change as much if the inputs of the
    original change by a unit in the last place, which is measured here. An error of all
    elements in one direction still shows, by regression.
    """
    moves, biases = [0.0] * len(errors), [0.0] * len(errors)
    for seed in range(NUM_NUDGES):
        nudged = run(*_nudge(leaves, seed))
        for i, (error, w, n) in enumerate(zip(errors, wanted, nudged, strict=True)):
            moves[i] = max(moves[i], compare(error.path, w, n).error)
            biases[i] = max(biases[i], _bias(_host(w), _host(n)))
    found: list[OutputError] = []
    rows = zip(errors, moves, biases, wanted, got, strict=True)
    for error, moved, natural, w, g in rows:
        tolerance = max(error.tolerance, ALLOWANCE * moved)
        bias = 0.0
        if MAX_BIAS < tolerance < _NOISE:
            bias = max(0.0, _bias(_host(w), _host(g)) - ALLOWANCE * natural)
        found.append(
            dataclasses.replace(
                error,
                sensitivity=moved,
                is_ill_conditioned=tolerance > error.tolerance,
                tolerance=tolerance,
                bias=bias,
            )
        )
    return found


_NOISE = 0.5
"""Tolerance from which on an output is all noise, and has no slope."""

_LEAST_ELEMENTS = 64
_STANDARD_ERRORS = 5.0


def _bias(wanted: np.ndarray, got: np.ndarray) -> float:
    """How far the slope of a regression is from 1, beyond `_STANDARD_ERRORS` of it.

    0 for keys, for arrays of few elements, and for those that are not finite.
    """
    is_real = wanted.dtype.kind == got.dtype.kind == "f"
    if not is_real or wanted.size < _LEAST_ELEMENTS or wanted.shape != got.shape:
        return 0.0
    w, g = wanted.astype(np.float64).ravel(), got.astype(np.float64).ravel()
    power = float(w @ w)
    if not np.isfinite(power) or not np.all(np.isfinite(g)) or power == 0:
        return 0.0
    slope = float(w @ g) / power
    residual = g - slope * w
    error = np.sqrt(float(residual @ residual) / (w.size - 1) / power)
    return max(0.0, abs(slope - 1) - _STANDARD_ERRORS * float(error))


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
    """The error relative to the scale of `wanted`; equal infinities and two NaNs agree.

    NaN if all of `wanted` is NaN: then nothing can be said.
    """
    if wanted.shape != got.shape:
        return float("inf")
    if not wanted.size:
        return 0.0
    if not np.issubdtype(wanted.dtype, np.inexact):
        return float(np.mean(wanted != got))
    if np.all(np.isnan(wanted)):
        return float("nan")
    agree = (wanted == got) | (np.isnan(wanted) & np.isnan(got))
    finite = np.isfinite(wanted)
    if np.any(~agree & (~finite | ~np.isfinite(got))):
        return float("inf")
    scale = float(np.max(np.abs(wanted[finite]), initial=0.0)) or 1.0
    rest = ~agree
    return float(np.max(np.abs(wanted[rest] - got[rest]), initial=0.0)) / scale
