"""A program with its 16-bit and 8-bit floats as float32, for checks of its numbers.

Rounding hides errors: a gradient in bfloat16 that is 1 % too large looks like a rounded
one. Computed in float32, the same program and its partitioned form agree to some units in
the last place, or one of them is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from jax import lax

from meshwright.program.ir import Atom, Literal, Op, Program, Value

_NARROW_KINDS = frozenset(
    {"bitcast_convert_type", "pallas_call", "shard_map", "pure_callback", "io_callback"}
)
"""Ops that depend on the bits of their operands, or whose bodies are not analysed."""


def is_narrow(dtype: str) -> bool:
    """Whether a dtype is a float of 16 bits or less."""
    return dtype in ("bfloat16", "float16") or dtype.startswith("float8_")


def widen_floats(program: Program) -> Program:
    """The program with all floats of 16 bits or less as float32.

    Law: values correspond one to one, but for conversions around ops that depend on the
    bits of their operands, which stay as they are.
    """
    return _Widener().program(program)


class _Widener:
    """Widens one program; `new` maps its atoms to those of the result."""

    def __init__(self) -> None:
        self.new: dict[Atom, Atom] = {}
        self.ops: list[Op] = []

    def program(self, program: Program) -> Program:
        inputs = tuple(self._value(value) for value in program.inputs)
        constants = {
            self._value(value): _wide_array(value, array)
            for value, array in program.constants.items()
        }
        for op in program.ops:
            if op.kind in _NARROW_KINDS:
                self._keep(op)
            else:
                self.ops.append(self._widen(op))
        outputs = tuple(self._atom(atom) for atom in program.outputs)
        return Program(inputs, tuple(self.ops), outputs, constants)

    def _value(self, value: Value) -> Value:
        wide = Value(value.shape, "float32") if is_narrow(value.dtype) else value
        self.new[value] = wide
        return wide

    def _atom(self, atom: Atom) -> Atom:
        if isinstance(atom, Literal) and is_narrow(atom.dtype):
            return Literal(np.float32(atom.value), "float32")  # pyright: ignore[reportArgumentType]
        return self.new.get(atom, atom)

    def _widen(self, op: Op) -> Op:
        return replace(
            op,
            operands=tuple(map(self._atom, op.operands)),
            results=tuple(map(self._value, op.results)),
            params=_wide_params(op.kind, op.params),
            bodies=tuple(map(widen_floats, op.bodies)),
        )

    def _keep(self, op: Op) -> None:
        """Add the op as it is, between conversions of its narrow operands and results."""
        operands = tuple(
            self._converted(self._atom(old), old.dtype, op) for old in op.operands
        )
        results = tuple(Value(old.shape, old.dtype) for old in op.results)
        self.ops.append(replace(op, operands=operands, results=results))
        for old, result in zip(op.results, results, strict=True):
            dtype = "float32" if is_narrow(old.dtype) else old.dtype
            self.new[old] = self._converted(result, dtype, op)

    def _converted(self, atom: Atom, dtype: str, near: Op) -> Atom:
        if atom.dtype == dtype:
            return atom
        result = Value(atom.shape, dtype)
        params = {"new_dtype": np.dtype(dtype), "weak_type": False, "sharding": None}
        primitive = lax.convert_element_type_p
        self.ops.append(
            Op(
                primitive.name,
                (atom,),
                (result,),
                params,
                source=near.source,
                primitive=primitive,
            )
        )
        return result


def _wide_array(value: Value, array: Any) -> Any:
    return array.astype("float32") if is_narrow(value.dtype) else array


def _wide_params(kind: str, params: Mapping[str, object]) -> Mapping[str, object]:
    """Parameters with float32 for each narrow dtype, and without narrow algorithms."""
    if kind == "reduce_precision":
        return {**params, "exponent_bits": 8, "mantissa_bits": 23}
    return {name: _wide_param(name, value) for name, value in params.items()}


def _wide_param(name: str, value: object) -> object:
    if name == "precision" and "BF16" in str(value):
        return None
    if isinstance(value, np.dtype | type):
        try:
            dtype = np.dtype(value)
        except TypeError:
            return value
        return np.dtype("float32") if is_narrow(dtype.name) else value
    return value
