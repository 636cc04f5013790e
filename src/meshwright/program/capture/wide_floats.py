"""Conversion of a program's 16-bit and 8-bit floats to float32, to check its numbers.

Rounding hides errors: a gradient in bfloat16 that is 1 % too large looks like a rounded
one. Computed in float32, the program and its partitioned form agree to some units in
the last place, unless one of them is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Jaxpr

from meshwright.program.ir import Atom, Literal, Op, Program, Value

_KEPT_KINDS = frozenset(
    {
        "bitcast_convert_type", "debug_callback", "debug_print", "io_callback",
        "pallas_call", "pure_callback",
    }
)  # fmt: skip
"""Ops that keep the original dtypes.

They depend on the bits of their operands, or they call code that is not analysed.
"""


def is_low_precision(dtype: str) -> bool:
    """Whether a dtype is a float of 16 bits or less."""
    return dtype in ("bfloat16", "float16") or dtype.startswith("float8_")


def has_low_precision(program: Program) -> bool:
    """Whether a program has floats of 16 bits or less."""
    results = (value for op in program.walk() for value in op.results)
    return any(is_low_precision(value.dtype) for value in (*program.inputs, *results))


def can_widen(program: Program) -> bool:
    """Whether all floats of a program can be widened to float32.

    They cannot if the program has a user's `shard_map`, whose body is not rewritten.
    """
    return not any(op.kind == "shard_map" for op in program.walk())


def widen_floats(program: Program) -> Program:
    """The program with all floats of 16 bits or less replaced by float32.

    Law: ops and values correspond one to one. Ops that depend on the bits of their
    operands still compute with the original dtypes, to which their operands are
    converted.
    """
    new: dict[Atom, Atom] = {}

    def widened(value: Value) -> Value:
        wide = Value(value.shape, "float32") if is_low_precision(value.dtype) else value
        new[value] = wide
        return wide

    def read(atom: Atom) -> Atom:
        if isinstance(atom, Literal) and is_low_precision(atom.dtype):
            number: Any = atom.value
            return Literal(np.float32(number), "float32")
        return new.get(atom, atom)

    def widen(op: Op) -> Op:
        wide = replace(
            op,
            operands=tuple(map(read, op.operands)),
            results=tuple(map(widened, op.results)),
            bodies=tuple(map(widen_floats, op.bodies)),
        )
        if op.kind not in _KEPT_KINDS:
            return replace(wide, params=_wide_params(op.kind, op.params))
        dtypes = tuple(a.dtype for a in op.operands)
        return replace(wide, primitive=_PrimitiveOnOriginalDtypes(op.primitive, dtypes))

    inputs = tuple(map(widened, program.inputs))
    constants = {
        widened(value): widen_array(array) for value, array in program.constants.items()
    }
    ops = tuple(map(widen, program.ops))
    return Program(inputs, ops, tuple(map(read, program.outputs)), constants)


def widen_array(array: Any) -> Any:
    """An array as float32 if its floats are narrower, else the array itself."""
    is_narrow = is_low_precision(str(getattr(array, "dtype", "")))
    return array.astype("float32") if is_narrow else array


@dataclass(frozen=True)
class _PrimitiveOnOriginalDtypes:
    """A primitive on the dtypes that it had before the program was widened."""

    primitive: Any
    dtypes: tuple[str, ...]

    @property
    def multiple_results(self) -> bool:
        return self.primitive.multiple_results

    def get_bind_params(self, params: Mapping[str, Any]) -> Mapping[str, Any]:
        return self.primitive.get_bind_params(params)

    def bind(self, *operands: Any, **params: Any) -> Any:
        pairs = zip(operands, self.dtypes, strict=True)
        originals = [
            jnp.asarray(value, dtype) if is_low_precision(dtype) else value
            for value, dtype in pairs
        ]
        results = self.primitive.bind(*originals, **params)
        if isinstance(results, Sequence):
            return [widen_array(result) for result in results]
        return widen_array(results)


def _wide_params(kind: str, params: Mapping[str, object]) -> Mapping[str, object]:
    """An op's parameters, with float32 in place of narrow dtypes.

    Parameters that ask for products in low precision are removed.
    """
    if kind == "reduce_precision":
        return {**params, "exponent_bits": 8, "mantissa_bits": 23}
    return {name: _wide_param(name, value) for name, value in params.items()}


def _wide_param(name: str, value: object) -> object:
    if name == "precision" and "BF16" in str(value):
        return None
    if isinstance(value, Jaxpr):  # how a scatter combines two elements
        return _wide_jaxpr(value)
    if isinstance(value, np.dtype | type):
        try:
            dtype = np.dtype(value)
        except TypeError:
            return value
        return np.dtype("float32") if is_low_precision(dtype.name) else value
    return value


def _wide_jaxpr(jaxpr: Any) -> Jaxpr:
    """A jaxpr without constants, traced again with float32 for inputs of low precision."""
    dtypes = [_wide_param("dtype", aval.dtype) for aval in jaxpr.in_avals]
    inputs = [jax.ShapeDtypeStruct((), dtype) for dtype in dtypes]  # single elements
    return jax.make_jaxpr(lambda *args: jax.core.eval_jaxpr(jaxpr, (), *args))(
        *inputs
    ).jaxpr
