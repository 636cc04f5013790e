"""Reads what XLA prints of a compiled program: computations, loops, collectives, costs.

Text of optimised HLO, or the log of the TPU compiler's scheduler, which shows the
program before collectives are folded into fusions, and what it believes each takes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_HEAD = re.compile(r"(ENTRY )?%?([\w.\-]+) \(")
_INSTRUCTION = re.compile(
    r"\s+(?:ROOT )?%?(?P<name>[\w.\-]+(?:#\d+)?) = (?P<type>\(.*?\)|\S+) "
    r"(?P<opcode>[\w\-]+)\((?P<rest>.*)$"
)
_CALLED = re.compile(
    r"(?:calls|to_apply|condition|body|async_execution_thread)=%?([\w.\-]+)"
)
_BODY = re.compile(r"body=%?([\w.\-]+)")
_BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")
_CONDITION = re.compile(r"condition=%?([\w.\-]+)")
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"')
_CONSTANT = re.compile(r"\((\d+)\)")
_CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')
_FASTEST = 1e12
"""Bytes per second that no link has: less time stands for what is part of a fusion."""

_ARRAY = re.compile(r"(\w+)\[([\d,]*)\]")

_UNKNOWN_CYCLES = 2**63 - 1
"""What the compiler writes where it has no estimate: the largest number it knows."""

_BITS = {"pred": 8, "s4": 4, "u4": 4, "bf16": 16}

_KINDS = {
    "all-gather": "all_gather",
    "all-reduce": "all_reduce",
    "all-to-all": "all_to_all",
    "collective-permute": "permute",
    "reduce-scatter": "reduce_scatter",
}


@dataclass(frozen=True, slots=True)
class Instruction:
    """One line: its name, the text of its type, its opcode and all that follows."""

    name: str
    type: str
    opcode: str
    rest: str


@dataclass(frozen=True, slots=True)
class Module:
    """Computations by name; `runs` says how often a step runs each.

    A branch counts as if it were always taken. A loop runs as often as is written on
    it, or else up to the constant that its condition compares with.
    """

    computations: Mapping[str, tuple[Instruction, ...]]
    runs: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class HloCollective:
    """A collective in compiled code.

    num_bytes: of the whole value on one device, as `cost.collective` counts them.
    runs: executions a step. seconds: what the compiler believes one takes; None if it
        does not say.
    """

    name: str
    kind: str
    num_bytes: int
    runs: int
    seconds: float | None = None


def parse_hlo(text: str) -> Module:
    """The computations of a module's text."""
    computations: dict[str, list[Instruction]] = {}
    entry, current = "", None
    for line in text.splitlines():
        head = _HEAD.match(line)
        if head:
            current = computations[head[2]] = []
            entry = head[2] if head[1] else entry
            continue
        found = _INSTRUCTION.match(line)
        if found and current is not None:
            current.append(Instruction(**found.groupdict()))
    done = {name: tuple(lines) for name, lines in computations.items()}
    return Module(done, _runs(done, entry))


def _runs(
    computations: Mapping[str, tuple[Instruction, ...]], entry: str
) -> dict[str, int]:
    runs: dict[str, int] = {}

    def visit(name: str, times: int) -> None:
        runs[name] = runs.get(name, 0) + times
        for instruction in computations.get(name, ()):
            for callee, trips in _calls(instruction, computations):
                visit(callee, times * trips)

    visit(entry, 1)
    return runs


def _calls(
    instruction: Instruction, computations: Mapping[str, tuple[Instruction, ...]]
) -> Iterator[tuple[str, int]]:
    """What an instruction runs, and how often."""
    rest = instruction.rest
    if instruction.opcode == "while":
        body = _BODY.search(rest)
        if body:
            yield body[1], _trips(rest, computations)
        return
    for callee in _CALLED.findall(rest):
        yield callee, 1
    branches = _BRANCHES.search(rest)
    if branches:
        for name in branches[1].split(","):
            yield name.strip().lstrip("%"), 1


def _trips(rest: str, computations: Mapping[str, tuple[Instruction, ...]]) -> int:
    """How often a loop runs: loops of JAX count up from 0, one by one."""
    told = _TRIPS.search(rest)
    if told:
        return int(told[1])
    condition = _CONDITION.search(rest)
    limits = [
        int(found[1])
        for each in computations.get(condition[1] if condition else "", ())
        if each.opcode == "constant" and (found := _CONSTANT.match("(" + each.rest))
    ]
    return max(limits, default=1)


def estimated_cycles(text: str) -> float:
    """What scheduled HLO says its fusions take, loops multiplied.

    Collectives and custom calls carry no estimate and count nothing.
    """
    module = parse_hlo(text)
    total = 0
    for name, runs in module.runs.items():
        for instruction in module.computations.get(name, ()):
            told = _CYCLES.search(instruction.rest)
            cycles = int(told[1]) if told else 0
            total += runs * cycles if cycles < _UNKNOWN_CYCLES else 0
    return float(total)


def hlo_collectives(
    text: str, final: str, cycles: Mapping[str, float], hertz: float
) -> list[HloCollective]:
    """The collectives of a program that stands as the scheduler first sees it.

    final: the same program as it ends; a log shows long lines in part only, so that how
        often a computation runs is read here. cycles: per instruction, what the
        scheduler believes. hertz: of the chip's clock.
    """
    module = parse_hlo(text)
    found = []
    for computation, runs in {**module.runs, **parse_hlo(final).runs}.items():
        instructions = module.computations.get(computation, ())
        types = {each.name: each.type for each in instructions}
        for each in instructions:
            kind = _KINDS.get(each.opcode.removesuffix("-start"))
            if kind is None:
                continue
            told, num_bytes = cycles.get(each.name), _whole_bytes(each, types)
            if told is not None and told / hertz * _FASTEST < num_bytes:
                told = None
            if computation.startswith("all-reduce-scatter"):
                kind = "reduce_scatter"
            found.append(
                HloCollective(
                    each.name,
                    kind,
                    num_bytes,
                    runs,
                    None if told is None else told / hertz,
                )
            )
    return found


def _whole_bytes(instruction: Instruction, types: Mapping[str, str]) -> int:
    """The larger side of a collective, of which one may stand for several arrays."""
    operands, _, _ = instruction.rest.partition(")")
    # Every fifth operand follows a comment: `/*index=5*/%name`.
    names = [name.rpartition("%")[2].strip() for name in operands.split(",")]
    given = sum(_operand_bytes(name, types) for name in names)
    made = _type_bytes(instruction.type)
    if instruction.opcode.endswith("-start"):
        made -= given  # it holds its operands as well
    return max(given, made)


def _operand_bytes(name: str, types: Mapping[str, str]) -> int:
    """Bytes of an operand: `while.14#1` is the second array that a loop hands out."""
    maker, _, position = name.partition("#")
    if not position:
        return _type_bytes(types.get(maker, ""))
    arrays = [*_ARRAY.finditer(types.get(maker, ""))]
    place = int(position)
    return _array_bytes(arrays[place]) if place < len(arrays) else 0


def _type_bytes(text: str) -> int:
    """Bytes of an array, or of all in a tuple, as HLO writes types."""
    return sum(_array_bytes(found) for found in _ARRAY.finditer(text))


def _array_bytes(found: re.Match[str]) -> int:
    dtype, extents = found[1], found[2]
    digits = dtype.lstrip("abcdefghijklmnopqrstuvwxyz").split("e")[0]
    bits = _BITS.get(dtype) or int(digits or 32)
    return bits * math.prod(int(n) for n in extents.split(",") if n) // 8


_LOGGED = re.compile(
    r"^I\d{4} [\d:.]+ +\d+ latency_hiding_scheduler\.cc:\d+\] ?(.*)$", re.MULTILINE
)
_SAID = re.compile(
    r"^(?:Instr: %(?P<name>\S+) = |Cost: (?P<cost>\S+)|\tEdge: "
    r"(?P<edge>\S+) latency: (?P<latency>\S+))"
)


def scheduler_report(log: str) -> tuple[str, dict[str, float]]:
    """The program that the TPU compiler's scheduler saw, and cycles by instruction.

    Of a pair of start and done, the time between them, under the name of the start. The
    log's form is nobody's promise: two empty results where it is not known.
    """
    told = [m[1] for m in _LOGGED.finditer(log)]
    starts = [i for i, line in enumerate(told) if line.startswith("HloModule")]
    if not starts:
        return "", {}
    ends = [i for i, line in enumerate(told) if i > starts[0] and "cycles:" in line]
    program = "\n".join(told[starts[0] : ends[0] if ends else len(told)])
    cycles: dict[str, float] = {}
    name = ""
    for line in told[len(program.splitlines()) + starts[0] :]:
        said = _SAID.match(line)
        if said is None:
            continue
        if said["name"]:
            name = said["name"]
        elif said["cost"] and name:
            cycles.setdefault(name, float(said["cost"]))
        elif said["edge"] and name.replace("-done", "-start") == said["edge"]:
            start = said["edge"]
            cycles[start] = max(cycles.get(start, 0.0), float(said["latency"]))
    return program, cycles
