"""A network as Python source that a person can read, and its weights as NumPy arrays."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np

from meshwright.features.codesign.nas.rewriting.calls import call_of, gives_list
from meshwright.features.codesign.nas.rewriting.network import ModelProgram
from meshwright.program.ir import Atom, Literal, Value, show_type


def source_of(network: ModelProgram, about: str) -> str:
    """A module with `apply(w, x)`, where `w` are the arrays by name.

    about: its docstring. Law: it computes what the network does, and can be differentiated.
    """
    names: dict[Atom, str] = {network.program.inputs[-1]: "x"}
    for value, weight in zip(network.program.inputs, network.weights, strict=False):
        names[value] = _weight(weight.name, value.dtype)
    for i, value in enumerate(network.program.constants):
        names[value] = _weight(f"constant.{i}", value.dtype)
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


def _weight(name: str, dtype: str) -> str:
    """An array of the file, in the type that the network has for it."""
    stored = f'w["{name}"]'
    return stored if _is_of_numpy(dtype) else f'jnp.asarray({stored}, "{dtype}")'


def _is_of_numpy(dtype: Any) -> bool:
    """Whether NumPy itself has a type, which its files keep; bfloat16 is none."""
    return np.dtype(dtype).kind != "V"


def _body(network: ModelProgram, names: dict[Atom, str]) -> Iterator[str]:
    for source, ops in groupby(network.program.ops, key=lambda op: str(op.source)):
        if source:
            yield f"    # {source}"
        for op in ops:
            operands = [_text(a, names) for a in op.operands]
            right = call_of(op, operands)
            for result in op.results:
                names[result] = f"v{len(names)}"
            left = ", ".join(names[r] for r in op.results)
            left += "," * (len(op.results) == 1 and gives_list(op))
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
    """The arrays that the source reads, by name; types that NumPy lacks as float32."""
    named = zip(network.weights, weights, strict=True)
    found = {weight.name: np.asarray(array) for weight, array in named}
    for i, array in enumerate(network.program.constants.values()):
        found[f"constant.{i}"] = np.asarray(array)
    return {
        name: array if _is_of_numpy(array.dtype) else array.astype(np.float32)
        for name, array in found.items()
    }
