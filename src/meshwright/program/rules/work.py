"""How much an op computes, by the primitive's name: the table beside the factor rules.

Counted as compilers count: one operation for each element that an elementwise op makes,
two for each product of a contraction, products with padding left out. Functions that a
unit of their own evaluates, such as exponentials, are told apart. What only moves data
counts nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from meshwright.program.ir import Op
from meshwright.program.records.born_open import born_open

TRANSCENDENTAL = (
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "bessel_i0e",
    "bessel_i1e", "cbrt", "cos", "cosh", "digamma", "erf", "erf_inv", "erfc", "exp",
    "exp2", "expm1", "igamma", "igamma_grad_a", "igammac", "lgamma", "log", "log1p",
    "log2", "logistic", "polygamma", "pow", "regularized_incomplete_beta", "rsqrt",
    "sin", "sinh", "sqrt", "tan", "tanh", "zeta",
)  # fmt: skip

ARITHMETIC = (
    "abs", "add", "add_any", "and", "ceil", "clamp", "clz", "complex", "div", "eq",
    "eq_to", "floor", "ge", "gt", "integer_pow", "is_finite", "le", "le_to", "lt",
    "lt_to", "max", "min", "mul", "mulhi", "ne", "neg", "nextafter", "not",
    "one_minus_square", "or", "polynomial", "population_count", "rem", "round",
    "select_n", "shift_left", "shift_right_arithmetic", "shift_right_logical", "sign",
    "square", "sub", "xor",
)  # fmt: skip

_REDUCTIONS = (
    "argmax", "argmin", "reduce", "reduce_and", "reduce_max", "reduce_min", "reduce_or",
    "reduce_prod", "reduce_sum", "reduce_xor",
)  # fmt: skip

_CUMULATIVE = ("cumlogsumexp", "cummax", "cummin", "cumprod", "cumsum")

_THREEFRY_ROUNDS = 20
_OPS_A_ROUND = 5
"""Add, rotate (three) and exclusive or, for two words at once (Salmon et al., 2011)."""


@born_open
@dataclass(frozen=True, slots=True)
class OpWork:
    """Operations of one application.

    flops: additions, multiplications, comparisons and their like, of any dtype.
    transcendentals: evaluations of exponentials, roots and their like.
    """

    flops: int = 0
    transcendentals: int = 0

    def __add__(self, other: OpWork) -> OpWork:
        return OpWork(
            self.flops + other.flops, self.transcendentals + other.transcendentals
        )

    def __mul__(self, times: int) -> OpWork:
        return OpWork(self.flops * times, self.transcendentals * times)

    def scaled(self, share: float) -> OpWork:
        """That of a share of the elements."""
        return OpWork(int(self.flops * share), int(self.transcendentals * share))


NO_WORK = OpWork()
"""That of what only moves data."""


def work_of(op: Op) -> OpWork:
    """The work of one op; of a region op nothing, for its bodies are ops themselves."""
    count = WORK.get(op.kind)
    return NO_WORK if count is None else count(op)


def _elements(op: Op) -> OpWork:
    return _flops_of(op.results[0].shape)


def _evaluations(op: Op) -> OpWork:
    return _transcendentals_of(op.results[0].shape)


# Most ops are elementwise, over few shapes: each shape is counted once.
@lru_cache(maxsize=4096)
def _flops_of(shape: tuple[int, ...]) -> OpWork:
    return OpWork(flops=_size(shape))


@lru_cache(maxsize=4096)
def _transcendentals_of(shape: tuple[int, ...]) -> OpWork:
    return OpWork(transcendentals=_size(shape))


def _reduced(op: Op) -> OpWork:
    """One operation for each operand element that does not start a result."""
    return OpWork(max(_size(op.operands[0].shape) - _size(op.results[0].shape), 0))


def _updates(op: Op) -> OpWork:
    return OpWork(flops=_size(op.operands[2].shape))


def _product(op: Op) -> OpWork:
    params: Any = op.params
    (contracted, _), _ = params["dimension_numbers"]
    summed = math.prod(op.operands[0].shape[d] for d in contracted)
    return OpWork(2 * _size(op.results[0].shape) * summed)


def _ragged_product(op: Op) -> OpWork:
    """Each row meets one group: the groups' dim is not multiplied out."""
    params: Any = op.params
    numbers = params["ragged_dot_dimension_numbers"]
    (contracted, _), _ = numbers.dot_dimension_numbers
    left, result = op.operands[0].shape, op.results[0].shape
    summed = math.prod(left[d] for d in contracted)
    is_ragged_sum = any(d in contracted for d in numbers.lhs_ragged_dimensions)
    made = _size(result[1:]) if is_ragged_sum else _size(result)
    return OpWork(2 * made * summed)


def _convolution(op: Op) -> OpWork:
    """Products of kernel and real input elements: neither padding nor stuffed zeros."""
    params: Any = op.params
    numbers = params["dimension_numbers"]
    left, right = (a.shape for a in op.operands)
    result = op.results[0].shape
    specs = (numbers.lhs_spec, numbers.rhs_spec, numbers.out_spec)
    spatial = zip(*(spec[2:] for spec in specs), strict=True)
    pairs = 1
    for i, (lhs_dim, rhs_dim, out_dim) in enumerate(spatial):
        pairs *= _meetings(
            _Window(
                left[lhs_dim],
                right[rhs_dim],
                result[out_dim],
                params["window_strides"][i],
                params["padding"][i][0],
                params["lhs_dilation"][i],
                params["rhs_dilation"][i],
            )
        )
    made = result[numbers.out_spec[0]] * result[numbers.out_spec[1]]
    return OpWork(2 * made * right[numbers.rhs_spec[1]] * pairs)


@dataclass(frozen=True, slots=True)
class _Window:
    """One spatial dim of a convolution, as XLA describes it."""

    extent: int
    kernel: int
    made: int
    stride: int
    pad: int
    base_dilation: int
    dilation: int


def _meetings(window: _Window) -> int:
    """Pairs of kernel element and output position that meet a real input element."""
    span = (window.extent - 1) * window.base_dilation
    total = 0
    for k in range(window.kernel):
        offset = k * window.dilation - window.pad
        total += _multiples(window, offset, span)
    return total


def _multiples(window: _Window, offset: int, span: int) -> int:
    """Output positions o whose o * stride + offset is a real element in 0..span."""
    first = max(0, -(offset // window.stride))
    last = min(window.made - 1, (span - offset) // window.stride)
    if last < first:
        return 0
    step = window.base_dilation
    if step == 1:
        return last - first + 1
    # o * stride + offset = 0 (mod step) repeats with period step / gcd(stride, step)
    period = step // math.gcd(window.stride, step)
    for start in range(first, min(first + period, last + 1)):
        if (start * window.stride + offset) % step == 0:
            return (last - start) // period + 1
    return 0


def _window_reduction(op: Op) -> OpWork:
    params: Any = op.params
    window = _size(params["window_dimensions"])
    return OpWork(_size(op.results[0].shape) * max(window - 1, 0))


def _sorting(op: Op) -> OpWork:
    params: Any = op.params
    extent = op.operands[0].shape[params["dimension"]]
    return OpWork(_size(op.operands[0].shape) * _log2(extent))


def _selection(op: Op) -> OpWork:
    params: Any = op.params
    return OpWork(_size(op.operands[0].shape) * _log2(params["k"]))


def _scanning(op: Op) -> OpWork:
    return OpWork(_size(op.operands[0].shape))


def _fourier(op: Op) -> OpWork:
    """5 n log2 n for a complex transform of length n, half for a real one."""
    params: Any = op.params
    length = _size(params["fft_lengths"])
    is_complex = all(a.dtype.startswith("complex") for a in (*op.operands, *op.results))
    batch = _size(op.operands[0].shape if is_complex else _real_shape(op)) // length
    return OpWork(batch * length * _log2(length) * (5 if is_complex else 3))


def _real_shape(op: Op) -> tuple[int, ...]:
    sides = (op.operands[0], op.results[0])
    return next(a.shape for a in sides if not a.dtype.startswith("complex"))


def _factorisation(numerator: int, denominator: int) -> Callable[[Op], OpWork]:
    """`numerator / denominator` n^3 for each square matrix of side n."""

    def count(op: Op) -> OpWork:
        *batch, rows, columns = op.operands[0].shape
        cube = rows * columns * min(rows, columns)
        return OpWork(_size(tuple(batch)) * cube * numerator // denominator)

    return count


def _triangular(op: Op) -> OpWork:
    """n^2 for each right-hand side."""
    return OpWork(op.operands[0].shape[-1] * _size(op.operands[1].shape))


def _random(op: Op) -> OpWork:
    return OpWork(_size(op.results[0].shape) * _THREEFRY_ROUNDS * _OPS_A_ROUND)


def _kernel(op: Op) -> OpWork:
    """As noted of the kernel that is called; nothing where nothing is known of it."""
    found = getattr(op.params.get("kernel"), "work", None)
    return found if isinstance(found, OpWork) else NO_WORK


def _size(shape: tuple[int, ...]) -> int:
    return math.prod(shape)


def _log2(extent: int) -> int:
    return max(1, math.ceil(math.log2(max(extent, 2))))


WORK: Mapping[str, Callable[[Op], OpWork]] = {
    **dict.fromkeys(ARITHMETIC, _elements),
    **dict.fromkeys(TRANSCENDENTAL, _evaluations),
    **dict.fromkeys(_REDUCTIONS, _reduced),
    **dict.fromkeys(_CUMULATIVE, _scanning),
    "cholesky": _factorisation(1, 3),
    "conv_general_dilated": _convolution,
    "dot_general": _product,
    "eig": _factorisation(25, 1),
    "eigh": _factorisation(9, 1),
    "fft": _fourier,
    "geqrf": _factorisation(4, 3),
    "householder_product": _factorisation(4, 3),
    "lu": _factorisation(2, 3),
    "pallas_call": _kernel,
    "qr": _factorisation(4, 3),
    "ragged_dot_general": _ragged_product,
    "random_bits": _random,
    "random_bits_window": _random,
    "reduce_window_max": _window_reduction,
    "reduce_window_min": _window_reduction,
    "reduce_window_sum": _window_reduction,
    "scatter-add": _updates,
    "scatter-max": _updates,
    "scatter-min": _updates,
    "scatter-mul": _updates,
    "scatter-sub": _updates,
    "sort": _sorting,
    "svd": _factorisation(20, 1),
    "threefry2x32": _random,
    "top_k": _selection,
    "triangular_solve": _triangular,
}
