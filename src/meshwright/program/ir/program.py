"""Programs: ops in order over values, with nested programs for loops and branches.

A program is a value: immutable, compared by identity, and silent about JAX. What an
op *does* stands nowhere here; `rules` knows that. Facts about a program (shardings,
times) live in tables keyed by its values.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType

from meshwright.program.records.fast_frozen import fast_frozen

_NO_PARAMS: Mapping[str, object] = MappingProxyType({})


@fast_frozen
@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """An array that an op makes or a program takes.

    shape: global in a captured program, per device in a lowered one.
    dtype: NumPy's name ("float32", "bfloat16"), or "key<fry>" for typed PRNG keys.
    """

    shape: tuple[int, ...]
    dtype: str

    def __str__(self) -> str:
        return show_type(self.shape, self.dtype)


@dataclass(frozen=True, slots=True, eq=False)
class Literal:
    """A scalar constant written into the program."""

    value: object
    dtype: str

    @property
    def shape(self) -> tuple[int, ...]:
        """Always the empty shape: literals are scalars."""
        return ()

    def __str__(self) -> str:
        return f"{self.value}"


Atom = Value | Literal


@dataclass(frozen=True, slots=True)
class Wire:
    """One quantity of a region op: the same array under several names.

    operand, result: positions outside. inputs, outputs: (body, position) inside.
    A scan's constant has operand and inputs; a carry all four; a scanned-over array
    operand and inputs, a stacked result outputs and result, both with `is_stacked`
    (outside there is one dim more, in front). A branch index has only an operand, a
    loop condition only outputs.
    """

    operand: int | None = None
    inputs: tuple[tuple[int, int], ...] = ()
    outputs: tuple[tuple[int, int], ...] = ()
    result: int | None = None
    is_stacked: bool = False


@fast_frozen
@dataclass(frozen=True, slots=True, eq=False)
class Op:
    """One application of a primitive.

    kind: the JAX primitive's name, one of the region kinds `scan`, `while`, `cond`,
        `remat`, or (in lowered programs) a collective of `lower`.
    params: the primitive's parameters, carried along unopened.
    bodies: nested programs of a region op; wires: what connects them to the outside,
        each operand, result, body input and body output in exactly one wire.
    has_effect: it must run even if nobody reads its results.
    source: prints as `file:line` of the user's code ("" if unknown).
    primitive: the object that the runtime applies; opaque here.
    """

    kind: str
    operands: tuple[Atom, ...]
    results: tuple[Value, ...]
    params: Mapping[str, object] = _NO_PARAMS
    bodies: tuple[Program, ...] = ()
    source: object = ""
    primitive: object = None
    wires: tuple[Wire, ...] = ()
    has_effect: bool = False


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Program:
    """Ops in the order in which they run.

    constants: arrays that the program closes over, by the value that names them.
    """

    inputs: tuple[Value, ...]
    ops: tuple[Op, ...]
    outputs: tuple[Atom, ...]
    constants: Mapping[Value, object] = field(default_factory=dict)

    def walk(self) -> Iterator[Op]:
        """Every op, those of nested programs included, in order."""
        for op in self.ops:
            yield op
            for body in op.bodies:
                yield from body.walk()

    def __str__(self) -> str:
        from meshwright.program.ir.text import show_program  # which imports this module

        return show_program(self)


_SHORT = {
    "float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16",
    "int64": "i64", "int32": "i32", "int16": "i16", "int8": "i8",
    "uint64": "u64", "uint32": "u32", "uint16": "u16", "uint8": "u8",
    "complex64": "c64", "complex128": "c128",
}  # fmt: skip


def show_type(shape: tuple[int, ...], dtype: str) -> str:
    """`f32[8, 6]`: the dtype's short name, then the shape."""
    return f"{_SHORT.get(dtype, dtype)}[{', '.join(map(str, shape))}]"


def full_dtype(short: str) -> str:
    """NumPy's name of a dtype from its short name; the inverse of `show_type`'s."""
    return next((dtype for dtype, name in _SHORT.items() if name == short), short)


def num_bytes(value: Atom) -> int:
    """Bytes of one value, unpadded; sub-byte dtypes count one byte an element."""
    return math.prod(value.shape, start=itemsize_bytes(value.dtype))


@cache
def itemsize_bytes(dtype: str) -> int:
    """Bytes of one element; a typed key counts the two words of threefry."""
    if dtype.startswith("key<"):
        return 16 if "rbg" in dtype else 8
    if dtype == "bool" or "float8" in dtype or "float4" in dtype:
        return 1
    digits = dtype.lstrip("abcdefghijklmnopqrstuvwxyz")
    return max(1, int(digits) // 8) if digits.isdigit() else 1
