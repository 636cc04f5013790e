"""The rules of each target, in the order in which they are applied."""

from __future__ import annotations

from collections.abc import Sequence

from meshwright.features.deploy.legal import (
    choices,
    floats,
    integers,
    orders,
    products,
    transcendental,
    windows,
)
from meshwright.features.deploy.legal.complex_parts import split_complex
from meshwright.features.deploy.legal.folding import fold_constants
from meshwright.features.deploy.legal.lost_nans import keep_nans
from meshwright.features.deploy.legal.rewrite import Rule, Rules, rewrite_ops
from meshwright.program.ir import Program


def _each(kinds: Sequence[str], rule: Rule) -> dict[str, Rule]:
    return dict.fromkeys(kinds, rule)


_DIVISION = _each(("div", "rem"), integers.guarded_division)
_CASTS: Rules = {"convert_element_type": floats.saturating_cast}
_WINDOWS = _each(windows.SCATTERS, windows.scattered)
_CUMULATIVE = ("cummax", "cummin", "cumprod", "cumlogsumexp")
_PLAIN_FORMS: dict[str, Rule] = {
    "round": floats.round_away, "polynomial": floats.horner,
    "dot_general": products.of_nothing,
    **_each(("lt_to", "le_to"), orders.total_order),
    **_each(_CUMULATIVE, orders.cumulative),
}  # fmt: skip
_COPIES: Rules = {"tile": orders.tiled, "stack": orders.stacked}
_LARGE = _each(("argmax", "argmin"), floats.place_with_nan)
_BITS = _each(("population_count", "clz"), integers.counted_bits)
_SHIFTS = ("shift_left", "shift_right_logical", "shift_right_arithmetic")
_SMALL = _each(integers.ARITHMETIC, integers.in_int32())

ONNX: tuple[Rules, ...] = (
    {**_PLAIN_FORMS, **_BITS, "sort": orders.sort_by_one_key},
    {
        **_DIVISION, **_CASTS, **_WINDOWS, **_LARGE, "gather": windows.gathered,
        "atan2": floats.arctan2, "cbrt": floats.cube_root, "erf_inv": floats.inverse_erf,
        "expm1": transcendental.expm1, "log1p": transcendental.log1p,
    },
    _SMALL,
    _each(_SHIFTS, integers.unsigned_shift),
    {**_COPIES, **_each(("reduce_max", "reduce_min"), floats.extreme_with_nan)},
)  # fmt: skip

LITERT: tuple[Rules, ...] = (
    {
        **_PLAIN_FORMS, **_BITS, "sort": orders.sort_by_one_key,
        "top_k": choices.top_by_key, "acosh": transcendental.arccosh,
        "asinh": transcendental.arcsinh, "atanh": transcendental.arctanh,
        "expm1": transcendental.expm1, "log1p": transcendental.log1p,
        "sinh": transcendental.sinh,
    },
    {
        **_DIVISION, **_CASTS, **_LARGE, "atan2": floats.arctan2,
        "cbrt": floats.cube_root, "erf_inv": floats.inverse_erf,
        "pow": floats.exact_pow, "rsqrt": floats.reciprocal_root,
        "sort": orders.sort_by_top, "dot_general": products.of_matrices,
        "gather": windows.signed_indices,
        **_each(("eq", "ne"), floats.finite_comparison),
    },
    {**_each(("max", "min", "xor"), integers.bools_as_logic)},
    {**_SMALL, "div": integers.unsigned_division},
    {"rem": integers.remainder_by_division},
    {"rem": floats.signed_remainder},
    {
        **_each(("add", "sub", "mul", "eq", "ne"), integers.modular),
        **_each(("lt", "le", "gt", "ge"), integers.unsigned_order),
        **_each(_SHIFTS, integers.shift_by_product),
        "dot_general": integers.product_by_sums,
        **_each(("and", "or"), integers.bits_by_sums),
    },
    {**_SMALL, **_COPIES},
)  # fmt: skip

IREE: tuple[Rules, ...] = (
    {"dot_general": products.of_nothing},
    {
        **_DIVISION, **_CASTS, **_WINDOWS, "sort": orders.stable_sort,
        "rev": orders.reverse_alone, "atan2": floats.arctan2,
        "cbrt": floats.cube_root, "pow": floats.exact_pow,
        "top_k": choices.top_in_order,
        **_each(("sin", "cos", "tan"), transcendental.of_angle),
    },
    {
        "dynamic_update_slice": windows.clamped_update,
        "dot_general": products.of_batches,
    },
)  # fmt: skip

WASM: tuple[Rules, ...] = (*IREE, {"tanh": floats.saturated_tanh})


def legalize(program: Program, passes: Sequence[Rules]) -> Program:
    """A program that computes the same, of ops that a target has."""
    program = fold_constants(program)
    if passes in (ONNX, LITERT) or any(op.kind == "fft" for op in program.walk()):
        program = split_complex(program)
    for rules in passes:
        program = rewrite_ops(program, rules)
    if passes is LITERT:
        program = rewrite_ops(program, keep_nans(program))
    return fold_constants(program)
