"""Bytes that the kernels of a compiled GPU program read and write, from its HLO text.

Each fusion, copy and library call is a kernel. Of an operand that a fusion only slices,
the slices count; of an array that it updates in place, the update. Bodies of loops count
once per iteration. Collectives, which use the links, are left out.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

_BYTES = {
    "pred": 1, "s8": 1, "u8": 1, "f8e4m3fn": 1, "f8e5m2": 1, "bf16": 2, "f16": 2, "s16": 2,
    "u16": 2, "s64": 8, "u64": 8, "f64": 8,
}  # fmt: skip
"""Bytes of an element by dtype; all other dtypes have four."""

_NO_KERNEL = frozenset(
    {"parameter", "tuple", "get-tuple-element", "bitcast", "constant", "async-done",
     "async-update", "partition-id", "iota", "all-reduce", "all-gather", "reduce-scatter",
     "all-reduce-start", "all-reduce-done", "all-gather-start", "all-gather-done",
     "all-to-all", "collective-permute", "collective-permute-start",
     "collective-permute-done"}
)  # fmt: skip
_SLICES = frozenset({"dynamic-slice", "slice", "gather"})
_UPDATE = "dynamic-update-slice"
_RENAMES = frozenset({"bitcast", "reshape"})


@dataclass(frozen=True, slots=True)
class Instruction:
    """One line of HLO: a name, the type of the result, an opcode and its operands.

    operands: names; `name#2` is the third part of a tuple. inside: text in the opcode's
    parentheses. line: the whole line.
    """

    name: str
    type: str
    opcode: str
    operands: tuple[str, ...]
    inside: str
    line: str

    def called(self, attribute: str) -> str:
        """The name of a computation in an attribute such as `body`."""
        found = re.search(attribute + r"=%([\w.\-]+)", self.line)
        assert found is not None, f"no {attribute} in {self.line}"
        return found[1]


Computations = Mapping[str, Sequence[Instruction]]


def traffic_bytes(text: str) -> int:
    """Bytes that the kernels of an optimized HLO module read and write in one run."""
    computations, entry = _parse(text)
    return sum(_kernel_bytes(computations, entry))


def _parse(text: str) -> tuple[dict[str, list[Instruction]], str]:
    """The computations of a module, and the name of its entry."""
    computations: dict[str, list[Instruction]] = {}
    entry = name = ""
    for line in text.splitlines():
        head = re.match(r"(ENTRY )?%([\w.\-]+) \(.*\{\s*$", line)
        if head:
            name = head[2]
            entry = name if head[1] else entry
            computations[name] = []
        elif name and (instruction := _instruction(line)):
            computations[name].append(instruction)
    return computations, entry


def _instruction(line: str) -> Instruction | None:
    head = re.match(r"\s+(?:ROOT )?%([\w.\-]+) = ", line)
    if not head:
        return None
    rest = line[head.end() :]
    end = _closing(rest, 0) + 1 if rest[0] == "(" else rest.index(" ")
    opcode = re.match(r" ?([\w\-]+)", rest[end:])
    assert opcode is not None, line
    start = end + opcode.end()
    inside = rest[start + 1 : _closing(rest, start)]
    operands = tuple(re.findall(r"%([\w.\-]+(?:#\d+)?)", inside))
    return Instruction(head[1], rest[:end], opcode[1], operands, inside, line)


def _closing(text: str, start: int) -> int:
    """The position of the parenthesis that closes the one at `start`."""
    depth = 0
    for position in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[position], 0)
        if not depth:
            return position
    raise ValueError(f"an open parenthesis in {text!r}")


def _size(type_text: str) -> int:
    """Bytes of a type; of a tuple, of all its parts."""
    arrays = re.findall(r"(\w+)\[([\d,]*)\]", type_text)
    return sum(
        _BYTES.get(dtype, 4) * math.prod(int(n) for n in dims.split(",") if n)
        for dtype, dims in arrays
    )


def _parts(type_text: str) -> list[str]:
    """The types of a tuple's parts."""
    parts, depth = [""], 0
    for letter in type_text[1:-1]:
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(letter, 0)
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def _operand_bytes(types: Mapping[str, str], operand: str) -> int:
    name, _, part = operand.partition("#")
    return _size(_parts(types[name])[int(part)] if part else types[name])


def _kernel_bytes(computations: Computations, name: str) -> Iterator[int]:
    """Bytes of each kernel of a computation; loops are multiplied."""
    instructions = computations[name]
    types = {each.name: each.type for each in instructions}
    for each in instructions:
        if each.opcode == "while":
            count = re.search(r'known_trip_count.*?"n":"(\d+)"', each.line)
            times = int(count[1]) if count else 1
            yield times * sum(_kernel_bytes(computations, each.called("body")))
        elif each.opcode == "call":
            yield from _kernel_bytes(computations, each.called("to_apply"))
        elif each.opcode == "async-start":
            yield from _kernel_bytes(computations, each.called("calls"))
        elif each.opcode not in _NO_KERNEL:
            yield _one_kernel_bytes(computations, each, types)


def _one_kernel_bytes(
    computations: Computations, kernel: Instruction, types: Mapping[str, str]
) -> int:
    written = _size(kernel.type)
    reads = [_operand_bytes(types, operand) for operand in kernel.operands]
    if kernel.opcode != "fusion":
        return written + sum(reads)
    body = computations[kernel.called("calls")]
    inner = {each.name: each.type for each in body}
    for each in body:
        if each.opcode == _UPDATE:
            written += _operand_bytes(inner, each.operands[1]) - _size(each.type)
    return written + sum(_read(body, i, whole) for i, whole in enumerate(reads))


def _read(body: Sequence[Instruction], number: int, whole: int) -> int:
    """Bytes that a fusion reads of its parameter of a number, which has `whole` bytes."""
    names = {
        e.name for e in body if e.opcode == "parameter" and e.inside == str(number)
    }
    users: list[Instruction] = []
    for each in body:
        if names.isdisjoint(each.operands):
            continue
        if each.opcode in _RENAMES:
            names.add(each.name)
        else:
            users.append(each)
    if not users:
        return whole
    updates = [e for e in users if e.opcode == _UPDATE and e.operands[0] in names]
    slices = [e for e in users if e.opcode in _SLICES]
    if len(updates) + len(slices) < len(users):
        return whole
    return sum(_size(each.type) for each in slices)
