"""Converters of elementwise ops, comparisons, selection and conversion of dtypes."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
from jax import lax

from meshwright.features.deploy.onnx.convert_ops import inline
from meshwright.features.deploy.onnx.converters import OpCall, converts
from meshwright.features.deploy.source.inexpressible import Inexpressible
from meshwright.program.capture import capture
from meshwright.program.ir import Literal

_SAME = {
    "abs": "Abs", "acos": "Acos", "acosh": "Acosh", "add": "Add", "add_any": "Add",
    "asin": "Asin", "asinh": "Asinh", "atan": "Atan", "atanh": "Atanh", "ceil": "Ceil",
    "copy": "Identity", "copy_p": "Identity", "cos": "Cos", "cosh": "Cosh", "div": "Div",
    "erf": "Erf", "exp": "Exp", "floor": "Floor", "log": "Log", "logistic": "Sigmoid",
    "layout_constraint": "Identity", "mul": "Mul", "name": "Identity", "neg": "Neg",
    "optimization_barrier": "Identity", "pow": "Pow",
    "sharding_constraint": "Identity", "sign": "Sign", "sin": "Sin", "sinh": "Sinh",
    "sqrt": "Sqrt", "stop_gradient": "Identity", "sub": "Sub", "tag": "Identity",
    "tan": "Tan", "tanh": "Tanh",
}  # fmt: skip
"""Kinds with the same meaning in ONNX; broadcasting covers scalars."""


def _plain(kind: str, call: OpCall) -> str:
    if call.dtype == "bool" and kind != "Identity":
        raise Inexpressible(f"ONNX's {kind} takes no bools")
    return call.node(kind, *call.names)


for _kind, _node in _SAME.items():
    converts(_kind)(partial(_plain, _node))


_FOR_BOOLS = {
    "and": ("And", "BitwiseAnd"), "or": ("Or", "BitwiseOr"), "xor": ("Xor", "BitwiseXor"),
    "not": ("Not", "BitwiseNot"), "max": ("Or", "Max"), "min": ("And", "Min"),
}  # fmt: skip


def _logic(nodes: tuple[str, str], call: OpCall) -> str:
    return call.node(nodes[call.dtype != "bool"], *call.names)


for _kind, _nodes in _FOR_BOOLS.items():
    converts(_kind)(partial(_logic, _nodes))

_COMPARED = {
    "eq": "Equal", "ge": "GreaterOrEqual", "gt": "Greater", "le": "LessOrEqual",
    "lt": "Less",
}  # fmt: skip


def _compared(kind: str, call: OpCall) -> str:
    names = list(call.names)
    dtype = call.op.operands[0].dtype
    if dtype not in ("float32", "int32", "int64", "float64"):
        integer = "int64" if dtype == "uint32" else "int32"
        wide = "float32" if "float" in dtype else integer
        names = [call.graph.cast(name, wide) for name in names]
    return call.node(kind, *names)


for _kind, _node in _COMPARED.items():
    converts(_kind)(partial(_compared, _node))


@converts("ne")
def ne(call: OpCall) -> str:
    return call.node("Not", _compared("Equal", call))


def _one(call: OpCall, value: float) -> str:
    return call.graph.constant(value, call.dtype)


@converts("integer_pow")
def integer_pow(call: OpCall) -> str:
    (x,), power = call.names, call.params["y"]
    if power == 2:
        return call.node("Mul", x, x)
    if power == -1:
        return call.node("Div", _one(call, 1), x)
    return call.node("Pow", x, _one(call, power))


_COMPOSED: dict[str, Callable[..., Any]] = {
    "erfc": lambda x: 1 - lax.erf(x),
    "exp2": lambda x: lax.pow(lax.full_like(x, 2), x),
    "log2": lambda x: lax.log(x) / math.log(2),
    "one_minus_square": lambda x: 1 - x * x,
    "rsqrt": lambda x: 1 / lax.sqrt(x),
    "square": lambda x: x * x,
}
"""Kinds that ONNX lacks, as functions of others that it has."""


@converts(*_COMPOSED)
def composed(call: OpCall) -> str:
    types = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in call.op.operands]
    program = capture(_COMPOSED[call.op.kind], types).program
    return inline(call.graph, program, call.names)[0]


@converts("round")
def round_(call: OpCall) -> str:
    method = call.params["rounding_method"]
    assert method == lax.RoundingMethod.TO_NEAREST_EVEN, "others are legalized"
    return call.node("Round", *call.names)


@converts("is_finite")
def is_finite(call: OpCall) -> str:
    (x,) = call.names
    return call.node(
        "Not", call.node("Or", call.node("IsNaN", x), call.node("IsInf", x))
    )


@converts("rem")
def rem(call: OpCall) -> str:
    return call.node("Mod", *call.names, fmod=1)


@converts("shift_left", "shift_right_logical")
def shift(call: OpCall) -> str:
    direction = "LEFT" if call.op.kind == "shift_left" else "RIGHT"
    return call.node("BitShift", *call.names, direction=direction)


@converts("clamp")
def clamp(call: OpCall) -> str:
    low, x, high = call.names
    limits = call.op.operands[0].shape, call.op.operands[2].shape
    if limits == ((), ()) and call.dtype in ("float32", "int32", "int64"):
        return call.node("Clip", x, low, high)
    return call.node("Min", call.node("Max", x, low), high)


@converts("select_n")
def select_n(call: OpCall) -> str:
    which, *cases = call.names
    dtype = call.op.operands[0].dtype
    if call.dtype == "bool" and len(cases) == 2:  # ONNX Runtime selects no bools
        on = which if dtype == "bool" else call.graph.cast(which, "bool")
        yes = call.node("And", on, cases[1])
        return call.node("Or", yes, call.node("And", call.node("Not", on), cases[0]))
    if dtype == "bool":
        return _expanded(call, call.node("Where", which, cases[1], cases[0]))
    found = cases[0]
    for i, case in enumerate(cases[1:], start=1):
        is_here = call.node("Equal", which, call.graph.constant(i, dtype))
        found = call.node("Where", is_here, case, found)
    return _expanded(call, found)


def _expanded(call: OpCall, name: str) -> str:
    """The result in its shape, if all operands were scalars but for the selector."""
    shapes = [o.shape for o in call.op.operands]
    return name if call.shape in shapes else call.graph.expand(name, call.shape)


@converts("convert_element_type")
def convert_element_type(call: OpCall) -> str:
    operand = call.op.operands[0]
    if operand.dtype == call.dtype:
        return call.names[0]
    if isinstance(operand, Literal):
        return call.graph.constant(operand.value, call.dtype)
    return call.graph.cast(call.names[0], call.dtype)


@converts("reduce_precision")
def reduce_precision(call: OpCall) -> str:
    bits = (call.params["exponent_bits"], call.params["mantissa_bits"])
    kinds = {(8, 23): "float32", (8, 7): "bfloat16", (5, 10): "float16"}
    if bits not in kinds:
        raise Inexpressible(
            f"no type has {bits[0]} bits of exponent, {bits[1]} of mantissa"
        )
    return call.graph.cast(call.graph.cast(call.names[0], kinds[bits]), call.dtype)
