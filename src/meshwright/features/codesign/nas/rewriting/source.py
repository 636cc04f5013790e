"""A network as Python source that a person can read, and its weights as NumPy arrays."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np
from jax.extend.core import primitives

from meshwright.errors import NasError
from meshwright.features.codesign.nas.rewriting.network import ModelProgram
from meshwright.program.ir import Atom, Literal, Op, Value, show_type

_OPERATORS = {"add": "+", "add_any": "+", "sub": "-", "mul": "*", "div": "/"}

_OF_JNP = {
    "abs": "abs", "cos": "cos", "exp": "exp", "expm1": "expm1", "floor": "floor",
    "log": "log", "log1p": "log1p", "max": "maximum", "min": "minimum",
    "neg": "negative", "pow": "power", "sign": "sign", "sin": "sin", "sqrt": "sqrt",
    "square": "square", "tanh": "tanh",
}  # fmt: skip

_REDUCTIONS = {"reduce_sum": "sum", "reduce_max": "max", "reduce_min": "min"}

_Texts = Sequence[str]


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
    ]
    return f"lax.conv_general_dilated({', '.join(parts)})"


def _dot(op: Op, operands: _Texts) -> str:
    params: Any = op.params
    (left, right), (left_batch, right_batch) = params["dimension_numbers"]
    pairs = (
        f"({_dims(left)}, {_dims(right)}), ({_dims(left_batch)}, {_dims(right_batch)})"
    )
    return f"lax.dot_general({', '.join(operands)}, ({pairs}))"


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
    return f"lax.reduce_window({operands[0]}, {start}, {fn}, {sizes}, [{padding}])"


def _reshape(op: Op, operands: _Texts) -> str:
    return f"{operands[0]}.reshape({_dims(op.results[0].shape)})"


def _broadcast(op: Op, operands: _Texts) -> str:
    dims = _dims(op.params["broadcast_dimensions"])
    shape = _dims(op.results[0].shape)
    return f"lax.broadcast_in_dim({operands[0]}, {shape}, {dims})"


def _power(op: Op, operands: _Texts) -> str:
    return f"{operands[0]} ** {op.params['y']}"


def _converted(op: Op, operands: _Texts) -> str:
    return f'jnp.asarray({operands[0]}, "{op.results[0].dtype}")'


def _transposed(op: Op, operands: _Texts) -> str:
    return f"{operands[0]}.transpose({_dims(op.params['permutation'])})"


def _concatenated(op: Op, operands: _Texts) -> str:
    return f"jnp.concatenate(({', '.join(operands)}), {op.params['dimension']})"


def _split(op: Op, operands: _Texts) -> str:
    return f"lax.split({operands[0]}, {_dims(op.params['sizes'])}, {op.params['axis']})"


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
}
"""Readable calls; every other op is written as its primitive with its parameters."""


def _plain(op: Op, operands: _Texts) -> str:
    """A primitive of `jax.extend`, called with the parameters that the trace has."""
    primitive: Any = op.primitive
    name = f"{op.kind}_p"
    if op.bodies or getattr(primitives, name, None) is not primitive:
        raise NasError(f"no source can be written for the op {op.kind!r}")
    for key, value in op.params.items():
        if not _is_literal(value):
            what = f"its parameter {key} is a {type(value).__name__}"
            raise NasError(f"no source can be written for {op.kind!r}: {what}")
    texts = [*operands, *(f"{key}={value!r}" for key, value in op.params.items())]
    return f"primitives.{name}.bind({', '.join(texts)})"


def _is_literal(value: object) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_literal, value))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    return value is None or type(value) in (bool, int, float, str)


# -- files --------------------------------------------------------------------------


def source_of(network: ModelProgram, about: str) -> str:
    """A module with `apply(w, x)`, where `w` are the arrays by name.

    about: its docstring. Law: it computes what the network does, and can be differentiated.
    """
    names: dict[Atom, str] = {network.program.inputs[-1]: "x"}
    for value, weight in zip(network.program.inputs, network.weights, strict=False):
        names[value] = f'w["{weight.name}"]'
    for i, value in enumerate(network.program.constants):
        names[value] = f'w["constant.{i}"]'
    shape = show_type(
        network.program.inputs[-1].shape, network.program.inputs[-1].dtype
    )
    lines = [
        f'"""{about}"""',
        "",
        "from pathlib import Path",
        "",
        "import jax.numpy as jnp",
        "import numpy as np",
        "from jax import lax",
        "from jax.extend.core import primitives  # noqa: F401",
        "",
        "",
        "def load():",
        '    """The trained weights by name."""',
        '    return dict(np.load(Path(__file__).with_name("weights.npz")))',
        "",
        "",
        "def apply(w, x):",
        f'    """Scores of a batch x: {shape}; w are the weights by name."""',
        *_body(network, names),
        f"    return {_text(network.program.outputs[0], names)}",
    ]
    return "\n".join(lines) + "\n"


def _body(network: ModelProgram, names: dict[Atom, str]) -> Iterator[str]:
    for source, ops in groupby(network.program.ops, key=lambda op: str(op.source)):
        if source:
            yield f"    # {source}"
        for op in ops:
            operands = [_text(a, names) for a in op.operands]
            right = _WRITERS.get(op.kind, _plain)(op, operands)
            for result in op.results:
                names[result] = f"v{len(names)}"
            left = ", ".join(names[r] for r in op.results)
            types = ", ".join(show_type(r.shape, r.dtype) for r in op.results)
            yield f"    {left} = {right}  # {types}"


def _text(atom: Atom, names: Mapping[Atom, str]) -> str:
    if isinstance(atom, Value):
        return names[atom]
    return _scalar(atom)


def _scalar(literal: Literal) -> str:
    value: Any = np.asarray(literal.value).item()
    if isinstance(value, float) and not math.isfinite(value):
        text = {"inf": "jnp.inf", "-inf": "-jnp.inf"}.get(str(value), "jnp.nan")
    else:
        text = repr(value)
    return (
        text
        if literal.dtype in ("float32", "int32", "bool")
        else f'jnp.asarray({text}, "{literal.dtype}")'
    )


def arrays_of(network: ModelProgram, weights: Sequence[Any]) -> dict[str, np.ndarray]:
    """The arrays that the source reads, by name."""
    named = zip(network.weights, weights, strict=True)
    found = {weight.name: np.asarray(array) for weight, array in named}
    for i, array in enumerate(network.program.constants.values()):
        found[f"constant.{i}"] = np.asarray(array)
    return found
