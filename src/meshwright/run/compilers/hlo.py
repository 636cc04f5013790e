"""Parsers of XLA's text: computations, loops, collectives and cost estimates.

They read optimised HLO, and the log of the TPU compiler's latency-hiding scheduler, which
has the program before collectives are fused, and an estimate for each instruction.
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from meshwright.program.ops import COLLECTIVES

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
"""Bytes per second that no link reaches.

If a collective's estimate is so short that its rate is higher, the estimate covers only
a part of it, and is not used.
"""

_ARRAY = re.compile(r"(\w+)\[([\d,]*)\]")

_UNKNOWN_CYCLES = 2**63 - 1
"""The largest 64-bit integer, which the compiler writes if it has no estimate."""

_BITS = {"pred": 8, "s4": 4, "u4": 4, "bf16": 16}

_KINDS = {kind.replace("_", "-"): kind for kind in COLLECTIVES} | {
    "collective-permute": "permute"
}
"""Kinds of collectives in our programs, by HLO's name."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """One line of HLO text, in parts.

    type: text of the result's type. rest: text after the opcode's opening parenthesis.
    """

    name: str
    type: str
    opcode: str
    rest: str


@dataclass(frozen=True, slots=True)
class Module:
    """Computations by name, and executions of each in one step (`runs`).

    A branch counts as if it were always taken. A loop has its annotated trip count, or
    else the constant with which its condition compares.
    """

    computations: Mapping[str, tuple[Instruction, ...]]
    runs: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class HloCollective:
    """A collective in compiled code.

    num_bytes: bytes of the whole value on one device, as in `predict.links.collective`.
    runs: executions per step. seconds: the compiler's estimate for one execution;
    `None` if there is none.
    """

    name: str
    kind: str
    num_bytes: int
    runs: int
    seconds: float | None = None


def parse_hlo(text: str) -> Module:
    """The module that an HLO text contains, with how often each computation runs."""
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
            for callee, trips in calls_of(instruction, computations):
                visit(callee, times * trips)

    visit(entry, 1)
    return runs


def calls_of(
    instruction: Instruction, computations: Mapping[str, tuple[Instruction, ...]]
) -> Iterator[tuple[str, int]]:
    """Computations that an instruction calls, and how often one execution calls each."""
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
    """Trip count of a loop whose counter starts at 0 and grows by 1, as JAX's do.

    rest: text of the `while` instruction after its opcode.
    """
    annotated = _TRIPS.search(rest)
    if annotated:
        return int(annotated[1])
    condition = _CONDITION.search(rest)
    limits = [
        int(found[1])
        for each in computations.get(condition[1] if condition else "", ())
        if each.opcode == "constant" and (found := _CONSTANT.match("(" + each.rest))
    ]
    return max(limits, default=1)


def cycles_of(instruction: Instruction) -> int | None:
    """The compiler's estimate of one execution, in cycles; `None` if it writes none.

    The result is 0 if the compiler writes that it does not know.
    """
    estimate = _CYCLES.search(instruction.rest)
    if estimate is None:
        return None
    cycles = int(estimate[1])
    return cycles if cycles < _UNKNOWN_CYCLES else 0


def estimated_cycles(text: str) -> float:
    """Sum of the cycle estimates on fusions in scheduled HLO, times trip counts of loops.

    Collectives and custom calls have no estimate and add nothing.
    """
    module = parse_hlo(text)
    return float(
        sum(
            runs * (cycles_of(each) or 0)
            for name, runs in module.runs.items()
            for each in module.computations.get(name, ())
        )
    )


def hlo_collectives(
    text: str, final: str, cycles: Mapping[str, float], hertz: float
) -> list[HloCollective]:
    """Collectives of a program before the compiler fuses them with other ops.

    text: the program that the scheduler logs.
    final: the same program at the end of compilation. It has the trip counts of loops;
        a log cuts long lines.
    cycles: the scheduler's estimates by instruction. hertz: rate of the chip's clock.
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
            estimate, num_bytes = cycles.get(each.name), _whole_bytes(each, types)
            if estimate is not None and estimate / hertz * _FASTEST < num_bytes:
                estimate = None
            if computation.startswith("all-reduce-scatter"):
                kind = "reduce_scatter"
            found.append(
                HloCollective(
                    each.name,
                    kind,
                    num_bytes,
                    runs,
                    None if estimate is None else estimate / hertz,
                )
            )
    return found


def _whole_bytes(instruction: Instruction, types: Mapping[str, str]) -> int:
    """Bytes of the larger of a collective's operand and result; either may be a tuple."""
    operands, _, _ = instruction.rest.partition(")")
    # Every fifth operand has a comment before it: `/*index=5*/%name`.
    names = [name.rpartition("%")[2].strip() for name in operands.split(",")]
    operand_bytes = sum(_operand_bytes(name, types) for name in names)
    result_bytes = sum(array_sizes(instruction.type))
    if instruction.opcode.endswith("-start"):
        result_bytes -= operand_bytes  # its type also contains the operands
    return max(operand_bytes, result_bytes)


def _operand_bytes(name: str, types: Mapping[str, str]) -> int:
    """Bytes of an operand; `while.14#1` is the second array in the tuple of a loop."""
    producer, _, position = name.partition("#")
    sizes = array_sizes(types.get(producer, ""))
    return sum(sizes[int(position) :][:1] if position else sizes)


def array_sizes(text: str) -> list[int]:
    """Bytes of each array type in a piece of HLO text, in order, without padding."""
    return [
        bits_of(dtype) * math.prod(int(n) for n in extents.split(",") if n) // 8
        for dtype, extents in _ARRAY.findall(text)
    ]


def bits_of(dtype: str) -> int:
    """Bits of one element of an HLO dtype, such as 16 of `bf16` and 8 of `f8e4m3fn`."""
    digits = dtype.lstrip("abcdefghijklmnopqrstuvwxyz").split("e")[0]
    return _BITS.get(dtype) or int(digits or 32)


_LOGGED = re.compile(
    r"^I\d{4} [\d:.]+ +\d+ latency_hiding_scheduler\.cc:\d+\] ?(.*)$", re.MULTILINE
)
_ESTIMATE = re.compile(
    r"^(?:Instr: %(?P<name>\S+) = |Cost: (?P<cost>\S+)|\tEdge: "
    r"(?P<edge>\S+) latency: (?P<latency>\S+))"
)


def scheduler_report(log: str) -> tuple[str, dict[str, float]]:
    """The program in the log of the TPU compiler's scheduler, and cycles by instruction.

    For a pair of start and done instructions, the latency between them is listed under
    the name of the start. The log has no documented format; both results are empty if
    it is not recognised.
    """
    lines = [m[1] for m in _LOGGED.finditer(log)]
    starts = [i for i, line in enumerate(lines) if line.startswith("HloModule")]
    if not starts:
        return "", {}
    ends = [i for i, line in enumerate(lines) if i > starts[0] and "cycles:" in line]
    program = "\n".join(lines[starts[0] : ends[0] if ends else len(lines)])
    cycles: dict[str, float] = {}
    name = ""
    for line in lines[len(program.splitlines()) + starts[0] :]:
        found = _ESTIMATE.match(line)
        if found is None:
            continue
        if found["name"]:
            name = found["name"]
        elif found["cost"] and name:
            cycles.setdefault(name, float(found["cost"]))
        elif found["edge"] and name.replace("-done", "-start") == found["edge"]:
            start = found["edge"]
            cycles[start] = max(cycles.get(start, 0.0), float(found["latency"]))
    return program, cycles
