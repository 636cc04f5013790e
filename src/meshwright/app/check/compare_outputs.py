"""Compare the outputs of a partitioned program with those of the original program."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from meshwright.app.check.report import MAX_BIAS, CheckReport, OutputError, tolerance_of
from meshwright.jax_private import is_key, move_words
from meshwright.run.local.layer_stack import whole_array


def check_outputs(
    paths: Sequence[str],
    original: Callable[..., Any],
    partitioned: Callable[[Sequence[Any]], Sequence[Any]],
    leaves: Sequence[Any],
    rounding: Sequence[float] | None = None,
) -> CheckReport:
    """The error of each output of the partitioned program, computed on these inputs.

    A wrong output raises nothing; the report says it.
    paths: the names of the outputs.
    original: the unpartitioned function, which takes the leaves as arguments.
    partitioned: the partitioned function, which takes one sequence of leaves.
    rounding: for each output, the tolerance of the narrowest dtype among the values from
        which it is computed. It is used if the error exceeds the tolerance of the output's
        own dtype.
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
    """The array `leaf`, gathered to one device if several devices hold it."""
    leaf = whole_array(leaf)
    if not isinstance(leaf, jax.Array) or not leaf.is_fully_addressable:
        return leaf
    if len(leaf.sharding.device_set) == 1:
        return leaf
    # Uncommitted, so that a shard_map may move it.
    return move_words(lambda x: jnp.asarray(np.asarray(x)), leaf)


def _conditioned(
    errors: Sequence[OutputError],
    run: Callable[..., Any],
    leaves: Sequence[Any],
    wanted: Sequence[Any],
    got: Sequence[Any],
) -> list[OutputError]:
    """The errors, with tolerances that allow for the effect of rounded inputs.

    Some outputs are ill-conditioned. Adam's first step, for example, divides a gradient by
    its own size, even if the gradient is zero except for rounding. Such outputs of the
    original program change as much when its inputs change by one unit in the last place.
    This function measures that change, by running the original on inputs with random
    rounding. The largest change of an element varies much from one random rounding to the
    next. So the measurement is repeated, up to `MAX_NUDGES` times, while an output looks
    wrong. A tolerance as large as this would hide an output that is too large or too small
    as a whole; linear regression finds that (see `_bias`).
    """
    moves, biases = [0.0] * len(errors), [0.0] * len(errors)
    for seed in range(MAX_NUDGES):
        if seed >= NUM_NUDGES and all(
            error.error <= max(error.tolerance, ALLOWANCE * moved)
            for error, moved in zip(errors, moves, strict=True)
        ):
            break
        nudged = run(*_nudge(leaves, seed))
        for i, (error, w, n) in enumerate(zip(errors, wanted, nudged, strict=True)):
            moves[i] = max(moves[i], compare(error.path, w, n).error)
            biases[i] = max(biases[i], _bias(_host(w), _host(n)))
    rows = zip(errors, moves, biases, wanted, got, strict=True)
    return [_judged(*row) for row in rows]


def _judged(
    error: OutputError, moved: float, natural: float, wanted: Any, got: Any
) -> OutputError:
    """The error of one output, with the tolerance that its sensitivity allows and its bias.

    moved: the largest error of the original program on inputs with random rounding.
    natural: the largest bias of the original program on such inputs.
    """
    tolerance = max(error.tolerance, ALLOWANCE * moved)
    bias = 0.0
    if MAX_BIAS < tolerance < _NOISE:
        bias = max(0.0, _bias(_host(wanted), _host(got)) - ALLOWANCE * natural)
    return dataclasses.replace(
        error,
        sensitivity=moved,
        is_ill_conditioned=tolerance > error.tolerance,
        tolerance=tolerance,
        bias=bias,
    )


_NOISE = 0.5
"""If the tolerance is above this, the output is noise, and its bias is not measured."""

_LEAST_ELEMENTS = 64
_STANDARD_ERRORS = 5.0


def _bias(wanted: np.ndarray, got: np.ndarray) -> float:
    """The share by which `got` is larger or smaller than `wanted` as a whole.

    It is the distance from 1 of the slope of a linear regression of `got` on `wanted`,
    minus `_STANDARD_ERRORS` standard errors of the slope. It is 0 for random keys, for
    arrays of few elements, and for values that are not finite.
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
"""Number of runs on randomly rounded inputs, if the outputs look right after them."""

MAX_NUDGES = 24
"""Most runs on randomly rounded inputs before an output is called wrong."""

ALLOWANCE = 4.0
"""Factor by which an error may exceed the effect of rounding the inputs, since the
program rounds inside, too.
"""


def _nudge(leaves: Sequence[Any], seed: int) -> list[Any]:
    """The input arrays with random rounding.

    Every float changes by at most one unit in the last place.
    """
    rng = np.random.default_rng(seed)

    def move(leaf: Any) -> Any:
        dtype = getattr(leaf, "dtype", None)
        if dtype is None or not jnp.issubdtype(dtype, jnp.floating):
            return leaf
        noise = rng.uniform(-1, 1, leaf.shape) * float(jnp.finfo(dtype).eps)
        return (np.asarray(leaf, np.float64) * (1 + noise)).astype(dtype)

    return [move(leaf) for leaf in leaves]


def compare(path: str, wanted: Any, got: Any) -> OutputError:
    """The error of an output: `got` compared with the correct array, `wanted`."""
    dtype = str(wanted.dtype)
    error = _error(_host(wanted), _host(got))
    return OutputError(path, dtype, tuple(wanted.shape), error, tolerance_of(dtype))


def _host(x: Any) -> np.ndarray:
    """An output as an array of NumPy that can be compared; of keys, their words."""
    x = jax.random.key_data(x) if is_key(x.dtype) else jnp.asarray(x)
    if jnp.issubdtype(x.dtype, jnp.floating) and x.dtype.itemsize < 4:
        x = x.astype(jnp.float32)
    return np.asarray(x)


def _error(wanted: np.ndarray, got: np.ndarray) -> float:
    """The largest absolute difference, divided by the largest absolute value in `wanted`.

    For integers, bools and keys it is the share of elements that differ. Equal infinities
    agree, and so do two NaNs. The result is NaN if all of `wanted` is NaN, since the
    comparison then says nothing.
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
