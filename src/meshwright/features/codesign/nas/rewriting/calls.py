"""Ops as calls in Python that a person can read, or else as their primitives."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any

import numpy as np
from jax import lax
from jax.extend.core import primitives

from meshwright.errors import NasError
from meshwright.program.ir import Op

_OPERATORS = {"add": "+", "add_any": "+", "sub": "-", "mul": "*"}

_OF_JNP = {
    "abs": "abs", "cos": "cos", "exp": "exp", "expm1": "expm1", "floor": "floor",
    "log": "log", "log1p": "log1p", "max": "maximum", "min": "minimum",
    "neg": "negative", "pow": "power", "sign": "sign", "sin": "sin", "sqrt": "sqrt",
    "square": "square", "tanh": "tanh",
}  # fmt: skip

_REDUCTIONS = {"reduce_sum": "sum", "reduce_max": "max", "reduce_min": "min"}

_Texts = Sequence[str]


def _expression(value: Any) -> str | None:
    """A parameter of an op as source; `None` if it has no such form."""
    if value is None or type(value) in (bool, int, str):
        return repr(value)
    if isinstance(value, np.integer):
        return repr(int(value))
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else f'float("{value}")'
    if isinstance(value, Enum) and hasattr(lax, type(value).__name__):
        return f"lax.{type(value).__name__}.{value.name}"
    if isinstance(value, np.dtype) or (
        isinstance(value, type) and issubclass(value, np.generic)
    ):
        return f'jnp.dtype("{np.dtype(value)}")'
    if not isinstance(value, tuple):
        return None
    parts = [_expression(each) for each in value]  # pyright: ignore[reportUnknownVariableType]
    texts = [part for part in parts if part is not None]
    if len(texts) < len(parts):
        return None
    name = type(value).__name__  # pyright: ignore[reportUnknownArgumentType]
    if name != "tuple":
        return f"lax.{name}({', '.join(texts)})" if hasattr(lax, name) else None
    return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"


def _dims(value: object) -> str:
    """A tuple of whole numbers, without the types of NumPy."""
    assert isinstance(value, Sequence), "dims are a sequence"
    return repr(tuple(int(v) for v in value))  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]


def _conv(op: Op, operands: _Texts) -> str:
    params: Any = op.params
    numbers = params["dimension_numbers"]
    specs = ", ".join(
        map(_dims, (numbers.lhs_spec, numbers.rhs_spec, numbers.out_spec))
    )
    padding = ", ".join(map(_dims, params["padding"]))
    parts = [
        *operands,
        _dims(params["window_strides"]),
        f"[{padding}]",
        _dims(params["lhs_dilation"]),
        _dims(params["rhs_dilation"]),
        f"lax.ConvDimensionNumbers({specs})",
        str(params["feature_group_count"]),
        str(params["batch_group_count"]),
        *_sums(op),
    ]
    return f"lax.conv_general_dilated({', '.join(parts)})"


def _dot(op: Op, operands: _Texts) -> str:
    params: Any = op.params
    (left, right), (left_batch, right_batch) = params["dimension_numbers"]
    pairs = (
        f"({_dims(left)}, {_dims(right)}), ({_dims(left_batch)}, {_dims(right_batch)})"
    )
    return f"lax.dot_general({', '.join([*operands, f'({pairs})', *_sums(op)])})"


def _sums(op: Op) -> list[str]:
    """Options of a product whose sums have another type than its operands."""
    wanted = op.params["preferred_element_type"]
    if wanted is None or all(a.dtype == op.results[0].dtype for a in op.operands):
        return []
    return [f"preferred_element_type={_expression(np.dtype(wanted))}"]


def _pool(op: Op, operands: _Texts) -> str:
    params: Any = op.params
    start, fn = {
        "reduce_window_max": ("-jnp.inf", "lax.max"),
        "reduce_window_sum": ("0.0", "lax.add"),
    }[op.kind]
    padding = ", ".join(map(_dims, params["padding"]))
    sizes = ", ".join(
        map(_dims, (params["window_dimensions"], params["window_strides"]))
    )
    dilations = [
        f"{name}={_dims(params[name])}"
        for name in ("base_dilation", "window_dilation")
        if any(size != 1 for size in params[name])
    ]
    parts = [operands[0], start, fn, sizes, f"[{padding}]", *dilations]
    return f"lax.reduce_window({', '.join(parts)})"


def _reshape(op: Op, operands: _Texts) -> str:
    return f"jnp.reshape({operands[0]}, {_dims(op.results[0].shape)})"


def _broadcast(op: Op, operands: _Texts) -> str:
    dims = _dims(op.params["broadcast_dimensions"])
    shape = _dims(op.results[0].shape)
    return f"lax.broadcast_in_dim({operands[0]}, {shape}, {dims})"


def _power(op: Op, operands: _Texts) -> str:
    return f"lax.integer_pow({operands[0]}, {op.params['y']})"


def _converted(op: Op, operands: _Texts) -> str:
    return f'jnp.asarray({operands[0]}, "{op.results[0].dtype}")'


def _transposed(op: Op, operands: _Texts) -> str:
    return f"jnp.transpose({operands[0]}, {_dims(op.params['permutation'])})"


def _concatenated(op: Op, operands: _Texts) -> str:
    return f"jnp.concatenate(({', '.join(operands)}), {op.params['dimension']})"


def _split(op: Op, operands: _Texts) -> str:
    return f"lax.split({operands[0]}, {_dims(op.params['sizes'])}, {op.params['axis']})"


def _stacked(op: Op, operands: _Texts) -> str:
    return f"jnp.stack(({', '.join(operands)},), {op.params['axis']})"


def _unstacked(op: Op, operands: _Texts) -> str:
    return f"jnp.unstack({operands[0]}, axis={op.params['axis']})"


def _tiled(op: Op, operands: _Texts) -> str:
    return f"jnp.tile({operands[0]}, {_dims(op.params['reps'])})"


_SCATTERS = [
    "scatter", *(f"scatter-{kind}" for kind in ("add", "max", "min", "mul", "sub"))
]  # fmt: skip


def _scattered(op: Op, operands: _Texts) -> str:
    params: Any = op.params
    options = [
        f"{key}={_expression(params[key])}"
        for key in ("indices_are_sorted", "unique_indices", "mode")
    ]
    numbers = _expression(params["dimension_numbers"])
    update = params.get("update_jaxpr")
    if numbers is None or (op.kind == "scatter" and update and update.eqns):
        raise NasError(f"no source can be written for this op of the kind {op.kind!r}")
    parts = [*operands, numbers, *options]
    return f"lax.{op.kind.replace('-', '_')}({', '.join(parts)})"


def _divided(op: Op, operands: _Texts) -> str:
    if np.issubdtype(np.dtype(op.results[0].dtype), np.integer):
        return f"lax.div({', '.join(operands)})"  # towards 0, unlike //
    return " / ".join(operands)


def _call(name: str) -> Callable[[Op, _Texts], str]:
    return lambda op, operands: f"{name}({', '.join(operands)})"


def _reduced(name: str) -> Callable[[Op, _Texts], str]:
    return lambda op, operands: f"{operands[0]}.{name}({_dims(op.params['axes'])})"


def _operator(sign: str) -> Callable[[Op, _Texts], str]:
    return lambda op, operands: f" {sign} ".join(operands)


_WRITERS: Mapping[str, Callable[[Op, _Texts], str]] = {
    **{kind: _operator(sign) for kind, sign in _OPERATORS.items()},
    **{kind: _call(f"jnp.{name}") for kind, name in _OF_JNP.items()},
    **{kind: _reduced(name) for kind, name in _REDUCTIONS.items()},
    "div": _divided,
    "logistic": _call("lax.logistic"),
    "rsqrt": _call("lax.rsqrt"),
    "erf": _call("lax.erf"),
    "stop_gradient": _call("lax.stop_gradient"),
    "conv_general_dilated": _conv,
    "dot_general": _dot,
    "reduce_window_max": _pool,
    "reduce_window_sum": _pool,
    "reshape": _reshape,
    "squeeze": _reshape,
    "expand_dims": _reshape,
    "broadcast_in_dim": _broadcast,
    "integer_pow": _power,
    "convert_element_type": _converted,
    "transpose": _transposed,
    "concatenate": _concatenated,
    "split": _split,
    "stack": _stacked,
    "unstack": _unstacked,
    "tile": _tiled,
    **dict.fromkeys(_SCATTERS, _scattered),
}
"""Readable calls; every other op is written as its primitive with its parameters."""


def call_of(op: Op, operands: Sequence[str]) -> str:
    """The source of an op's results; operands: the source of each."""
    return _WRITERS.get(op.kind, _plain)(op, operands)


def _plain(op: Op, operands: _Texts) -> str:
    """A primitive of `jax.extend`, called with the parameters that the trace has."""
    primitive: Any = op.primitive
    name = f"{op.kind}_p"
    if op.bodies or getattr(primitives, name, None) is not primitive:
        raise NasError(f"no source can be written for the op {op.kind!r}")
    texts = list(operands)
    for key, value in op.params.items():
        text = _expression(value)
        if text is None:
            what = f"its parameter {key} is a {type(value).__name__}"
            raise NasError(f"no source can be written for {op.kind!r}: {what}")
        texts.append(f"{key}={text}")
    return f"primitives.{name}.bind({', '.join(texts)})"


def gives_list(op: Op) -> bool:
    """Whether what is written for an op gives a list, even of one result."""
    primitive: Any = op.primitive
    is_many = primitive is not None and primitive.multiple_results
    return is_many and (op.kind not in _WRITERS or op.kind in ("split", "unstack"))
