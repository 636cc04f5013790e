"""Values: arrays and scalar constants of programs, and wires.

A wire records the path of one array into and out of the body of a loop or branch.
"""

import math
from dataclasses import dataclass
from functools import cache

from meshwright.program.records import fast_frozen


@fast_frozen
@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """An array: the result of an op, an input of a program, or a constant.

    shape: the global shape in a captured program, the shape on one device in a lowered
        one.
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
    """The path of one array into, through and out of the bodies of a region op.

    A region op is a loop, a branch or a remat, which runs nested programs (its bodies).


    operand, result: position of the array among the op's operands and results.
    inputs, outputs: (body, position) pairs: the array's positions among the inputs and
        outputs of the op's bodies.
    is_stacked: whether the array outside of the body has one more leading dim, with one
        element per iteration, as the `xs` and `ys` of `lax.scan`.
    Examples: the wire of a constant of a scan has an operand and inputs. The wire of a
    carry has an operand, inputs, outputs and a result. A scanned input has an operand
    and inputs and is stacked; a stacked output has outputs and a result. The index of a
    `cond` has only an operand, and the condition of a `while` has only outputs.
    """

    operand: int | None = None
    inputs: tuple[tuple[int, int], ...] = ()
    outputs: tuple[tuple[int, int], ...] = ()
    result: int | None = None
    is_stacked: bool = False


SHORT_DTYPES = {
    "float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16",
    "int64": "i64", "int32": "i32", "int16": "i16", "int8": "i8",
    "uint64": "u64", "uint32": "u32", "uint16": "u16", "uint8": "u8",
    "complex64": "c64", "complex128": "c128",
}  # fmt: skip


def show_type(shape: tuple[int, ...], dtype: str) -> str:
    """Text of an array's type: short dtype and shape, such as `f32[8, 6]`."""
    return f"{SHORT_DTYPES.get(dtype, dtype)}[{', '.join(map(str, shape))}]"


def num_bytes(value: Atom) -> int:
    """Bytes of one value without padding; a sub-byte element counts one byte."""
    return math.prod(value.shape, start=itemsize_bytes(value.dtype))


def is_small_integer(dtype: str) -> bool:
    """Whether a dtype is an integer of 8 bits or less, as for quantized weights."""
    return dtype.lstrip("u").startswith("int") and itemsize_bytes(dtype) == 1


@cache
def itemsize_bytes(dtype: str) -> int:
    """Bytes of one element of a dtype; for a typed PRNG key, bytes of its state."""
    if dtype.startswith("key<"):
        return 16 if "rbg" in dtype else 8
    if dtype == "bool" or "float8" in dtype or "float4" in dtype:
        return 1
    digits = dtype.lstrip("abcdefghijklmnopqrstuvwxyz")
    return max(1, int(digits) // 8) if digits.isdigit() else 1
