"""The parser of printed programs."""

from __future__ import annotations

import ast
import re

from meshwright.errors import MeshwrightError
from meshwright.program.ir.program import Op, Opaque, Program, split_top
from meshwright.program.ir.values import SHORT_DTYPES, Atom, Literal, Value, Wire

FULL_DTYPES = {short: dtype for dtype, short in SHORT_DTYPES.items()}

_TYPED = re.compile(r"([%@])(\d+): ([^\[]+)\[([\d, ]*)\]$")
_OP = re.compile(
    r"(?:(?P<results>[%@].*?) = )?(?P<kind>[^\s%@!]+)(?P<effect>!?)(?: (?P<rest>.*))?$"
)


def parse_program(text: str) -> Program:
    """The program that was printed as `text`, with parameters as `Opaque` text.

    Raises `MeshwrightError`, which names the line, for text that no program printed.
    """
    return parse_linear(text)[0]


def parse_linear(text: str) -> tuple[Program, frozenset[Value]]:
    """The program that was printed as `text`, and its values that are written `@n`."""
    parser = _Parser(text.splitlines())
    try:
        program = parser.program("program")
    except (ValueError, KeyError, IndexError, SyntaxError) as error:
        raise MeshwrightError(parser.complaint(str(error))) from None
    if parser.position != len(parser.lines):
        raise MeshwrightError(parser.complaint("nothing may follow the program"))
    return program, frozenset(parser.linear)


class _Parser:
    """The current line, and the values that have been defined, by number."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = [line.strip() for line in lines if line.strip()]
        self.position = 0
        self.values: dict[str, Value] = {}
        self.linear: set[Value] = set()

    def complaint(self, why: str) -> str:
        at = min(self.position, len(self.lines) - 1)
        line = repr(self.lines[at]) if self.lines else "the end"
        return f"cannot read program text at {line}: {why}"

    def program(self, title: str) -> Program:
        head = self.lines[self.position]
        if not (head.startswith(f"{title}(") and head.endswith(") {")):
            raise ValueError(f"wanted '{title}(...) {{'")
        inputs = tuple(map(self.typed, split_top(head[len(title) + 1 : -3])))
        self.position += 1
        constants: dict[Value, object] = {}
        ops: list[Op] = []
        while not re.match("return(?: |$)", self.lines[self.position]):
            line = self.lines[self.position]
            if line.startswith("constant "):
                constants[self.typed(line.removeprefix("constant "))] = Opaque("")
                self.position += 1
            else:
                ops.append(self.op(line))
        outputs = self.lines[self.position].removeprefix("return")
        program = Program(inputs, tuple(ops), self.atoms(outputs), constants)
        self.close(1)
        return program

    def close(self, skip: int) -> None:
        self.position += skip
        if self.lines[self.position] != "}":
            raise ValueError("wanted '}'")
        self.position += 1

    def op(self, line: str) -> Op:
        found = _OP.match(line)
        if found is None:
            raise ValueError("wanted '%n: type[shape] = kind operands {params}'")
        rest = (found["rest"] or "").removesuffix(" {")
        rest, _, wires = rest.partition("wires [")
        operands, brace, params = rest.strip().partition("{")
        self.position += 1
        read = self.atoms(operands)
        bodies: list[Program] = []
        if wires:
            while self.lines[self.position] != "}":
                bodies.append(self.program("body"))
            self.close(0)
        return Op(
            found["kind"],
            read,
            tuple(map(self.typed, split_top(found["results"] or ""))),
            _params(params.removesuffix("}")) if brace else {},
            tuple(bodies),
            wires=tuple(map(_wire, split_top(wires.removesuffix("]")))),
            has_effect=bool(found["effect"]),
        )

    def typed(self, text: str) -> Value:
        found = _TYPED.match(text.strip())
        if found is None:
            raise ValueError(f"{text!r} is no '%n: type[shape]'")
        sign, number, dtype, shape = found.groups()
        if number in self.values:
            raise ValueError(f"%{number} is named twice")
        value = Value(tuple(map(int, split_top(shape))), FULL_DTYPES.get(dtype, dtype))
        if sign == "@":
            self.linear.add(value)
        return self.values.setdefault(number, value)

    def atoms(self, text: str) -> tuple[Atom, ...]:
        return tuple(map(self.atom, split_top(text)))

    def atom(self, text: str) -> Atom:
        if text.startswith(("%", "@")):
            return self.values[text[1:]]
        value, _, dtype = text.rpartition(":")
        return Literal(_scalar(value), FULL_DTYPES.get(dtype, dtype))


def _scalar(text: str) -> object:
    if text.strip("-") in ("nan", "inf"):
        return float(text)
    if "nan" in text or "inf" in text:
        return complex(text.strip("()"))
    return ast.literal_eval(text)


def _params(text: str) -> dict[str, object]:
    pairs = (part.partition("=") for part in split_top(text))
    return {key: Opaque(value) for key, _, value in pairs}


def _wire(text: str) -> Wire:
    operand, inputs, outputs, result = text.removesuffix("*").split("|")

    def ends(part: str) -> tuple[tuple[int, int], ...]:
        pairs = (end.split(".") for end in part.split("+")) if part != "-" else ()
        return tuple((int(body), int(position)) for body, position in pairs)

    return Wire(
        None if operand == "-" else int(operand),
        ends(inputs),
        ends(outputs),
        None if result == "-" else int(result),
        text.endswith("*"),
    )
