"""Elementwise ops as MLIR ops on scalars, and which of them map zero to zero."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from meshwright.program.ir import Literal, Op

MLIR_DTYPES = {
    "float64": "f64", "float32": "f32", "int64": "i64", "int32": "i32", "bool": "i1",
}  # fmt: skip
"""MLIR's names of the dtypes that programs may have."""

Emit = Callable[[str], str]
"""A function that appends an MLIR op, a text, and returns its result's name."""

_BINARY = {
    "add": ("arith.addf", "arith.addi"),
    "add_any": ("arith.addf", "arith.addi"),
    "sub": ("arith.subf", "arith.subi"),
    "mul": ("arith.mulf", "arith.muli"),
    "div": ("arith.divf", "arith.divsi"),
    "max": ("arith.maximumf", "arith.maxsi"),
    "min": ("arith.minimumf", "arith.minsi"),
    "and": ("", "arith.andi"),
    "or": ("", "arith.ori"),
    "pow": ("math.powf", ""),
}

_UNARY = {
    "abs": "math.absf", "cos": "math.cos", "erf": "math.erf", "exp": "math.exp",
    "expm1": "math.expm1", "floor": "math.floor", "log": "math.log",
    "log1p": "math.log1p", "neg": "arith.negf", "rsqrt": "math.rsqrt",
    "sin": "math.sin", "sqrt": "math.sqrt", "tanh": "math.tanh",
}  # fmt: skip

_COMPARISONS = {
    "eq": ("oeq", "eq"), "ge": ("oge", "sge"), "gt": ("ogt", "sgt"),
    "le": ("ole", "sle"), "lt": ("olt", "slt"), "ne": ("une", "ne"),
}  # fmt: skip

_IDENTITIES = frozenset({"copy", "copy_p", "name", "tag", "stop_gradient"})

SCALAR_KINDS = frozenset(
    {
        *_BINARY, *_UNARY, *_COMPARISONS, *_IDENTITIES,
        "convert_element_type", "integer_pow", "logistic", "select_n", "square",
    }
)  # fmt: skip
"""The kinds of elementwise ops that can be written as MLIR ops on scalars."""

_KEEP_ZEROS = frozenset(
    {
        "abs", "expm1", "floor", "log1p", "neg", "sin", "sqrt", "square", "tanh",
        *_IDENTITIES,
    }
)  # fmt: skip


def keeps_zeros(op: Op) -> bool:
    """Whether an op returns zero wherever its one sparse operand is zero."""
    if op.kind == "div":
        return isinstance(op.operands[1], Literal) and bool(op.operands[1].value)
    if op.kind == "convert_element_type":
        return op.results[0].dtype.startswith("float")
    return op.kind in _KEEP_ZEROS


def constant(literal: Literal, emit: Emit) -> str:
    """The name of a literal, which is written as an MLIR constant."""
    return emit(f"arith.constant {constant_text(literal.value, literal.dtype)}")


def constant_text(value: Any, dtype: str) -> str:
    """A number with its type as MLIR text, such as `1.0 : f32`."""
    kind = MLIR_DTYPES[dtype]
    if dtype == "bool":
        return "true" if value else "false"
    if not dtype.startswith("float"):
        return f"{int(value)} : {kind}"
    number = float(value)
    if number != number or number in (float("inf"), -float("inf")):
        bits = np.array(number, dtype).tobytes()[::-1].hex().upper()
        return f"0x{bits} : {kind}"
    return f"{number:.17e} : {kind}"


def scalar_op(op: Op, given: Sequence[str], emit: Emit) -> str | None:
    """The name of an elementwise op's result; `None` if MLIR lacks these dtypes.

    given: names of the operands' elements.
    """
    dtype = op.operands[-1].dtype
    kind = MLIR_DTYPES[dtype]
    is_float = dtype.startswith("float")
    if op.kind in _IDENTITIES:
        return given[0]
    if op.kind in _BINARY:
        name = binary_name(op.kind, dtype)
        return emit(f"{name} {given[0]}, {given[1]} : {kind}") if name else None
    if op.kind in _UNARY and is_float:
        return emit(f"{_UNARY[op.kind]} {given[0]} : {kind}")
    if op.kind in _COMPARISONS:
        which, dialect = _COMPARISONS[op.kind][0 if is_float else 1], "fi"[not is_float]
        return emit(f"arith.cmp{dialect} {which}, {given[0]}, {given[1]} : {kind}")
    if op.kind == "select_n" and len(given) == 3 and op.operands[0].dtype == "bool":
        return emit(f"arith.select {given[0]}, {given[2]}, {given[1]} : {kind}")
    if op.kind == "convert_element_type":
        return _converted(given[0], dtype, op.results[0].dtype, emit)
    return _composed(op, given[0], kind, emit) if is_float else None


def binary_name(kind: str, dtype: str) -> str:
    """MLIR's name of an op on two elements of a dtype; "" if it has none."""
    return _BINARY[kind][0 if dtype.startswith("float") else 1]


def _composed(op: Op, x: str, kind: str, emit: Emit) -> str | None:
    """The result of an op that takes several MLIR ops."""
    if op.kind == "square":
        return emit(f"arith.mulf {x}, {x} : {kind}")
    if op.kind == "integer_pow":
        power = emit(f"arith.constant {int(str(op.params['y']))} : i32")
        return emit(f"math.fpowi {x}, {power} : {kind}, i32")
    if op.kind == "logistic":
        one = emit(f"arith.constant 1.0 : {kind}")
        negative = emit(f"arith.negf {x} : {kind}")
        grown = emit(f"math.exp {negative} : {kind}")
        total = emit(f"arith.addf {one}, {grown} : {kind}")
        return emit(f"arith.divf {one}, {total} : {kind}")
    return None


def _converted(x: str, source: str, target: str, emit: Emit) -> str | None:
    old, new = MLIR_DTYPES[source], MLIR_DTYPES[target]
    widths = {"f64": 64, "f32": 32, "i64": 64, "i32": 32, "i1": 1}
    if old == new:
        return x
    if target == "bool":
        return None
    to_float, from_float = target.startswith("float"), source.startswith("float")
    if to_float and from_float:
        name = "arith.extf" if widths[new] > widths[old] else "arith.truncf"
    elif to_float:
        name = "arith.uitofp" if source == "bool" else "arith.sitofp"
    elif from_float:
        name = "arith.fptosi"
    elif source == "bool":
        name = "arith.extui"
    else:
        name = "arith.extsi" if widths[new] > widths[old] else "arith.trunci"
    return emit(f"{name} {x} : {old} to {new}")
