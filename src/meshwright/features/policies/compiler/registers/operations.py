"""Micro-operations that functions run in one call, from clang's assembler text.

clang tells beside its machine code how often each block runs in one call of a function.
An instruction counts one, and each of its accesses of memory one more. So spill code,
registers saved for callers, values computed again and copies all count as what they are.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

_FUNCTION = re.compile(r"(\S.*?): +(?:#|//) @")
_BLOCK = re.compile(r"\.LBB\d+_\d+:|(?:#|//) %bb\.\d+:")
_MAP = re.compile(r"\t\.section\t\S*llvm_bb_addr_map")
_FREQUENCY = re.compile(r"\t\.\w+\s+(.*?)\s+(?:#|//) basic block frequency")
_ESCAPE = re.compile(r"\\([0-7]{3}|.)")
_ESCAPED = {"b": 8, "f": 12, "n": 10, "r": 13, "t": 9, '"': 34, "\\": 92}

_PUSHES, _POPS = ("push", "call"), ("pop", "ret")
"""x86 instructions that access the stack without an operand that says so."""

_NO_ACCESS = ("lea", "nop", "prefetch")
"""x86 instructions with an operand like those in memory, which they do not access."""

_READ_AND_WRITE = (
    *("add", "sub", "adc", "sbb", "inc", "dec", "neg", "not", "and", "or", "xor"),
    *("sh", "sa", "ro", "rc", "lock", "xchg", "cmpxchg", "xadd", "bts", "btr", "btc"),
)
"""x86 instructions that read and write their last operand, which may be in memory."""

_WRITE = ("mov", "vmov", "set", "st", "fst", "fist", "pextr", "vpextr", "vextract",
    "extractps", "vextractps", "vmaskmov", "vpmaskmov",
)  # fmt: skip
"""x86 instructions that only write their last operand."""


class Operations(NamedTuple):
    """Micro-operations of one call: instructions, and what they read and write."""

    instructions: float
    loads: float
    stores: float


def operation_flags() -> tuple[str, ...]:
    """Flags with which clang writes assembler text with the frequencies of blocks.

    Its machine code is the same as without them.
    """
    frequencies = ("-fbasic-block-address-map", "-mllvm", "-pgo-analysis-map=bb-freq")
    return ("-S", "-fverbose-asm", *frequencies)


def counted_operations(text: str) -> dict[str, Operations]:
    """Micro-operations in one call, by function, of assembler text that these flags make.

    Accesses of memory are known for x86 and AArch64. `ValueError` if no frequencies are
    told, or operands are written in Intel's order.
    """
    if "\t.intel_syntax" in text:
        raise ValueError("the code is written in Intel's syntax; wanted no -masm=intel")
    counted: dict[str, Operations] = {}
    for name, blocks, frequencies in _functions(text):
        if not frequencies or len(blocks) != len(frequencies):
            raise ValueError(
                "this clang does not tell how often the blocks of a function run; wanted"
                " clang 22"
            )
        shares = [often / max(frequencies[0], 1) for often in frequencies]
        counted[name] = Operations(
            *(
                sum(number * share for number, share in zip(kind, shares, strict=True))
                for kind in zip(*blocks, strict=True)
            )
        )
    return counted


def _functions(text: str) -> Iterator[tuple[str, list[list[int]], list[int]]]:
    """Name, operations by block, and frequencies of these blocks, of each function."""
    name, blocks, frequencies = "", list[list[int]](), list[int]()
    in_map = False
    for line in text.splitlines():
        if in_map and (found := _FREQUENCY.match(line)):
            frequencies.append(_number(found[1]))
        elif line.startswith("\t."):
            in_map = bool(_MAP.match(line)) or (
                in_map and not line.startswith(("\t.text", "\t.section"))
            )
        elif found := _FUNCTION.match(line):
            if name and blocks:
                yield name, blocks, frequencies
            name, blocks, frequencies = found[1].strip('"'), [], []
        elif _BLOCK.match(line):
            blocks.append([0, 0, 0])
        elif line.startswith("\t") and blocks and not frequencies:
            for kind, number in enumerate(_operations(line)):
                blocks[-1][kind] += number
    if name and blocks:
        yield name, blocks, frequencies


def _operations(line: str) -> tuple[int, int, int]:
    """Instructions, loads and stores of one instruction."""
    name, _, operands = line.strip().partition("\t")
    operands = operands.split("#", 1)[0].rstrip()
    if name.startswith(("#", "//")):
        return 0, 0, 0
    if "[" in operands:  # AArch64
        return 1, name.startswith("ld"), name.startswith("st")
    if name.startswith((*_PUSHES, *_POPS)):
        pushes = name.startswith(_PUSHES)
        return 1, (not pushes) + ("(" in operands), pushes
    if "(" not in operands or name.startswith(_NO_ACCESS):
        return 1, 0, 0
    if operands.endswith(")") and name.startswith(_READ_AND_WRITE):
        return 1, 1, 1
    writes = operands.endswith(")") and name.startswith(_WRITE)
    return 1, not writes, writes


def _number(text: str) -> int:
    """A number as the assembler has it: in digits, or as the bytes of its LEB128 form."""
    if not text.startswith('"'):
        return int(text, 0)
    spelled = _ESCAPE.sub(_byte, text[1:-1])
    return sum((ord(each) & 127) << 7 * place for place, each in enumerate(spelled))


def _byte(escape: re.Match[str]) -> str:
    """The byte of an escape in a string of assembler text."""
    code = escape[1]
    return chr(int(code, 8) if code.isdigit() else _ESCAPED.get(code, ord(code)))
