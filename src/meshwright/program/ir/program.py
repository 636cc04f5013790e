"""Programs: ops in order over values, with nested programs for loops and branches.

A program is immutable, compared by identity, and does not depend on JAX. What an op
means is not stored here; the factor rules in `program/ops` define it. Facts about a
program, such as shardings or times, are mappings keyed by its values. A program prints
one line per op:

    program(%0: f32[8, 6], %1: f32[6, 4]) {
      %2: f32[8, 4] = dot_general %0, %1 {dimension_numbers=(((1,), (0,)), ((), ()))}
      return %2
    }

Values are numbered in order of appearance. `!` after an op's name marks an effect. A
region op (a loop, branch or remat) lists its wires (`ir.Wire`: the path of one array
into and out of the bodies) as `operand|inputs|outputs|result`, and then its bodies. In
a wire, `-` means that the part is absent, `body.position` is an input or output of a
body, and `*` at the end means that the array has one element per iteration. Parameters
print as short text that is the same in every run.

Law: a printed program can be read back, and then prints the same text. The tests have
the parser (`tests/program/ir/parser.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Any

from meshwright.program.ir.values import Atom, Literal, Value, Wire, show_type
from meshwright.program.records import fast_frozen

_NO_PARAMS: Mapping[str, Any] = MappingProxyType({})


@fast_frozen
@dataclass(frozen=True, slots=True, eq=False)
class Op:
    """One application of a JAX primitive, a loop or branch, or a collective.

    kind: the JAX primitive's name; or `scan`, `while`, `cond` or `remat` for an op with
        nested programs (a region op); or, in a lowered program, the name of a
        collective.
    params: the primitive's parameters, which only the op's factor rule interprets.
    bodies: nested programs of a region op.
    wires: connections between the bodies and the operands and results; each operand,
        result, body input and body output belongs to exactly one wire.
    has_effect: whether the op must run even if nobody reads its results.
    is_backward: whether JAX made the op by transposition, as it makes a backward pass.
    is_recomputed: whether the op computes a value a second time (rematerialization).
    source: an object that prints as `file:line` of the user's code ("" if unknown).
    primitive: the JAX primitive that is called when the program runs.
    """

    kind: str
    operands: tuple[Atom, ...]
    results: tuple[Value, ...]
    params: Mapping[str, Any] = _NO_PARAMS
    bodies: tuple[Program, ...] = ()
    source: object = ""
    primitive: object = None
    wires: tuple[Wire, ...] = ()
    has_effect: bool = False
    is_backward: bool = False
    is_recomputed: bool = False


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Program:
    """Ops in the order in which they run, with the program's inputs and outputs.

    constants: the arrays that the traced function closes over, keyed by the `Value`
        that stands for each of them in the ops.
    """

    inputs: tuple[Value, ...]
    ops: tuple[Op, ...]
    outputs: tuple[Atom, ...]
    constants: Mapping[Value, object] = field(default_factory=dict)

    def walk(self) -> Iterator[Op]:
        """Every op in order, each followed by the ops of its nested programs."""
        for op in self.ops:
            yield op
            for body in op.bodies:
                yield from body.walk()

    def __str__(self) -> str:
        return show_program(self)


def show_program(program: Program) -> str:
    """The program as text, one line per op, with bodies indented."""
    return "\n".join(ProgramWriter().program(program, "program", ""))


class ProgramWriter:
    """Prints programs and ops as text, and numbers their values in order of appearance.

    linear: values to print as `@n`; all other values are printed as `%n`. Autodiff uses
        this to mark values that are linear in the tangents.
    """

    def __init__(self, linear: Collection[Value] = ()) -> None:
        self.numbers: dict[Value, int] = {}
        self.linear = linear

    def program(self, program: Program, title: str, indent: str) -> Iterator[str]:
        inputs = ", ".join(map(self.typed, program.inputs))
        yield f"{indent}{title}({inputs}) {{"
        for value in program.constants:
            yield f"{indent}  constant {self.typed(value)}"
        for op in program.ops:
            yield f"{indent}  {self.op(op)}" + (" {" if op.bodies else "")
            for body in op.bodies:
                yield from self.program(body, "body", indent + "    ")
            if op.bodies:
                yield f"{indent}  }}"
        yield f"{indent}  return {', '.join(map(self.atom, program.outputs))}".rstrip()
        yield f"{indent}}}"

    def op(self, op: Op) -> str:
        operands = ", ".join(map(self.atom, op.operands))
        results = ", ".join(map(self.typed, op.results))
        line = f"{results} = {op.kind}" if results else op.kind
        line += ("!" if op.has_effect else "") + (f" {operands}" if operands else "")
        params = show_params(op.params)
        line += f" {{{params}}}" if params else ""
        if op.bodies:
            line += f" wires [{', '.join(map(_show_wire, op.wires))}]"
        return line

    def typed(self, value: Value) -> str:
        return f"{self.atom(value)}: {show_type(value.shape, value.dtype)}"

    def atom(self, atom: Atom) -> str:
        if isinstance(atom, Literal):
            return f"{show_scalar(atom.value)}:{show_type((), atom.dtype)[:-2]}"
        sign = "@" if atom in self.linear else "%"
        return f"{sign}{self.numbers.setdefault(atom, len(self.numbers))}"


def _show_wire(wire: Wire) -> str:
    def ends(pairs: tuple[tuple[int, int], ...]) -> str:
        return "+".join(f"{body}.{position}" for body, position in pairs) or "-"

    operand = "-" if wire.operand is None else str(wire.operand)
    result = "-" if wire.result is None else str(wire.result)
    text = "|".join((operand, ends(wire.inputs), ends(wire.outputs), result))
    return text + ("*" if wire.is_stacked else "")


_LONGEST = 100
_OPENING, _CLOSING = "([{<", ")]}>"
_HIDDEN = ("reason",)  # plans print it; it is too long for a line of a program


@dataclass(frozen=True, slots=True)
class Opaque:
    """The text of a parameter or constant that was parsed but not interpreted."""

    text: str

    def __str__(self) -> str:
        return self.text


def show_param(value: object) -> str:
    """Short text of a parameter, the same in every run, without addresses or newlines."""
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    if value is None or isinstance(value, bool | int | float | complex | Opaque):
        return str(value)
    if type(value) in (tuple, list, set, frozenset):
        return _show_sequence(value)
    if type(value) is dict:
        items = (f"{show_param(k)}: {show_param(v)}" for k, v in value.items())
        return f"{{{', '.join(items)}}}"
    name = getattr(value, "__name__", "")
    if callable(value) and name:
        return f"<{name.strip('<>')}>"
    text = repr(value)
    plain = len(text) <= _LONGEST and text.isprintable() and " at 0x" not in text
    return text if plain and _is_balanced(text) else f"<{type(value).__name__}>"


def _show_sequence(value: object) -> str:
    assert isinstance(value, tuple | list | set | frozenset)
    parts = [show_param(v) for v in value]
    if isinstance(value, tuple):
        return f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"
    if isinstance(value, list):
        return f"[{', '.join(parts)}]"
    return f"{{{', '.join(sorted(parts))}}}"


def _is_balanced(text: str) -> bool:
    """Whether brackets are balanced and no comma is outside of brackets and quotes."""
    try:
        return len(split_top(text)) == 1
    except ValueError:
        return False


def split_top(text: str) -> list[str]:
    """The parts of a text between commas that are outside of brackets and quotes."""
    parts, depth, quote, start = [], 0, "", 0
    for i, char in enumerate(text):
        if quote:
            quote = "" if char == quote and text[i - 1] != "\\" else quote
        elif char in "'\"":
            quote = char
        elif char in _OPENING:
            depth += 1
        elif char in _CLOSING and not text.startswith("->", i - 1):
            depth -= 1
        elif char == "," and not depth:
            parts.append(text[start:i].strip())
            start = i + 1
        if depth < 0:
            raise ValueError(f"unbalanced brackets in {text!r}")
    if depth or quote:
        raise ValueError(f"unbalanced brackets or quotes in {text!r}")
    last = text[start:].strip()
    return [*parts, last] if last or parts else []


def show_params(params: Mapping[str, object]) -> str:
    shown = [(k, v) for k, v in params.items() if v is not None and k not in _HIDDEN]
    return ", ".join(f"{key}={show_param(value)}" for key, value in shown)


def show_scalar(value: object) -> str:
    """Text of a NumPy or Python scalar, as Python prints the scalar, without spaces."""
    item = getattr(value, "item", None)
    return repr(item() if callable(item) else value).replace(" ", "")
