"""Programs as text, one line per op, and back.

    program(%0: f32[8, 6], %1: f32[6, 4]) {
      %2: f32[8, 4] = dot_general %0, %1 {dimension_numbers=(((1,), (0,)), ((), ()))}
      return %2
    }

Values are numbered in order of appearance. `!` after a kind marks an effect. A region
op lists its wires as `operand|inputs|outputs|result` (`-` for none, `body.position` for
an end, `*` for stacked), then its bodies. What a parameter means is not known here: it
prints as short stable text, which `parse_program` carries along unopened.

Law: show_program(parse_program(text)) == text, for every text that show_program wrote.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from meshwright.program.ir.program import (
    Atom,
    Literal,
    Op,
    Program,
    Value,
    Wire,
    show_type,
)

_LONGEST = 100
_OPENING, _CLOSING = "([{<", ")]}>"
_HIDDEN = ("reason",)  # said by plans, too long for a line


@dataclass(frozen=True, slots=True)
class Opaque:
    """The text of a parameter or constant, carried along unopened."""

    text: str

    def __str__(self) -> str:
        return self.text


def show_program(program: Program) -> str:
    """The program, one line per op, bodies indented."""
    return "\n".join(_Writer().program(program, "program", ""))


def show_op(op: Op) -> str:
    """One op by itself: its values are numbered from its operands on."""
    return _Writer().op(op)


def show_ops(ops: Iterable[Op]) -> list[str]:
    """One line per op, values numbered alike in all of them."""
    writer = _Writer()
    return [writer.op(op) for op in ops]


def show_param(value: object) -> str:
    """Short text of a parameter, the same on every run: no addresses, no newlines."""
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
    """True when `split_top` sees the text as one piece."""
    try:
        return len(split_top(text)) == 1
    except ValueError:
        return False


def split_top(text: str) -> list[str]:
    """The parts between commas that stand in no bracket and no quotes."""
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


class _Writer:
    """Numbers values as it meets them."""

    def __init__(self) -> None:
        self.numbers: dict[Value, int] = {}

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
        params = _show_params(op.params)
        line += f" {{{params}}}" if params else ""
        if op.bodies:
            line += f" wires [{', '.join(map(_show_wire, op.wires))}]"
        return line

    def typed(self, value: Value) -> str:
        return f"{self.atom(value)}: {show_type(value.shape, value.dtype)}"

    def atom(self, atom: Atom) -> str:
        if isinstance(atom, Literal):
            return f"{_show_scalar(atom.value)}:{show_type((), atom.dtype)[:-2]}"
        return f"%{self.numbers.setdefault(atom, len(self.numbers))}"


def _show_params(params: Mapping[str, object]) -> str:
    shown = [(k, v) for k, v in params.items() if v is not None and k not in _HIDDEN]
    return ", ".join(f"{key}={show_param(value)}" for key, value in shown)


def _show_scalar(value: object) -> str:
    """A NumPy or Python scalar as Python writes it."""
    item = getattr(value, "item", None)
    return repr(item() if callable(item) else value).replace(" ", "")


def _show_wire(wire: Wire) -> str:
    def ends(pairs: tuple[tuple[int, int], ...]) -> str:
        return "+".join(f"{body}.{position}" for body, position in pairs) or "-"

    operand = "-" if wire.operand is None else str(wire.operand)
    result = "-" if wire.result is None else str(wire.result)
    text = "|".join((operand, ends(wire.inputs), ends(wire.outputs), result))
    return text + ("*" if wire.is_stacked else "")
