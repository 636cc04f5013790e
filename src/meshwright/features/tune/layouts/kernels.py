"""Kernels in the HLO text of an optimised program, with features of their cost.

The text is what the compiler has before it generates code. The compiler's estimate of a
kernel depends on nothing but the kernel: the ops in it, and the types, layouts and
memories of its operands and results. So a kernel that was compiled once has a known
cost in every other program (`kernel_costs`).
"""

import hashlib
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from meshwright.features.tune.layouts.kernel_work import (
    ARRAY,
    DIMENSIONS,
    LABELS,
    PRODUCTS,
    Array,
    Rates,
    expected_cycles,
    numbers,
    operands_of,
    read_arrays,
    work_of,
)
from meshwright.features.tune.layouts.shipped_weights import shipped_weights
from meshwright.run.compilers.hlo import (
    Instruction,
    Module,
    calls_of,
    parse_hlo,
)

_FREE = frozenset(
    ("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "while", "call")
    + ("conditional", "after-all", "partition-id", "replica-id", "opt-barrier")
)
_CALLS = re.compile(r"calls=%?([\w.\-]+)")
_DROPPED = re.compile(
    r", (?:dim_labels=[^,]*|dimensions=\{[^}]*\}|to_apply=%?[\w.\-]+)"
    r"|, (?:metadata|backend_config|sharding|calls|frontend_attributes)=.*"
    r"|/\*.*?\*/"
)
"""Dims and labels, which `_physical_line` writes itself, and what changes no cost."""


@dataclass(frozen=True, slots=True)
class HloKernel:
    """One HLO instruction, such as a fusion, that runs as a kernel.

    key: hash that is equal for kernels of equal cost.
    runs: executions per step; a loop's body counts once per iteration.
    kind: name of the main op; guesses prefer kernels of the same kind.
    work: the kernel's work by term, see `kernel_work`.
    features: logarithms of expected cycles, bytes and operations, see `_features`.
    is_async: whether it runs beside other kernels, without an estimate of cycles.
    unestimated_bytes: bytes that it moves in one execution without an estimate; 0 if the
        compiler estimates its cycles.
    """

    name: str
    key: str
    runs: int
    kind: str
    work: Mapping[str, float]
    features: tuple[float, ...]
    is_async: bool
    unestimated_bytes: float


def read_kernels(text: str, rates: Rates) -> list[HloKernel]:
    """The kernels in the HLO text of an optimised program, in order.

    rates: those of the chip that the program is compiled for.
    """
    module = parse_hlo(text)
    types = {
        each.name: each.type for lines in module.computations.values() for each in lines
    }
    kernels: list[HloKernel] = []
    for name, runs in control_runs(module).items():
        for each in module.computations[name]:
            if each.opcode not in _FREE and not each.opcode.endswith("-done"):
                kernels.append(_kernel(each, runs, (module, types, rates)))
    return kernels


def control_runs(module: Module) -> dict[str, int]:
    """Executions per step of the entry computation and of bodies of loops and branches."""
    inner = {
        callee
        for lines in module.computations.values()
        for each in lines
        if each.opcode not in ("while", "conditional", "call")
        for callee, _ in calls_of(each, module.computations)
    }
    return {
        name: runs
        for name, runs in module.runs.items()
        if name in module.computations and name not in inner
    }


def _kernel(
    each: Instruction, runs: int, program: tuple[Module, Mapping[str, str], Rates]
) -> HloKernel:
    module, types, rates = program
    operands = [_type_of(name, types) for name in operands_of(each)]
    called = _CALLS.search(each.rest)
    body = module.computations.get(called[1], ()) if called else ()
    arrays = [array for text in operands for array in read_arrays(text)]
    work = work_of(each, arrays, body, types, rates)
    return HloKernel(
        name=each.name,
        key=_key(each, operands, body),
        runs=runs,
        kind=_kind(each, body),
        work=work,
        features=tuple(_features(arrays, read_arrays(each.type), body, work)),
        is_async=_is_async(each),
        unestimated_bytes=_unestimated_bytes(each, arrays),
    )


def _is_async(each: Instruction) -> bool:
    return each.opcode.endswith("-start") or each.opcode == "custom-call"


def _unestimated_bytes(each: Instruction, operands: Sequence[Array]) -> float:
    """Bytes that an instruction moves for which the compiler estimates no cycles.

    For a copy on chip that changes the minor dim, the estimate is a constant: 100
    cycles per block of the array, whatever its size (all 112 such copies that libtpu
    0.0.50 compiled in random programs, and no other kernel). It counts as none.
    """
    results = read_arrays(each.type)
    sizes = sorted(array.num_bytes for array in results)
    if _is_async(each):
        # The type of a start op also contains its operand, which is no smaller.
        place = -2 if each.opcode.endswith("-start") else -1
        return sizes[place] if len(sizes) >= -place else 0.0
    if each.opcode != "copy" or not (operands and results):
        return 0.0
    before, after = operands[0], results[0]
    is_on_chip = before.is_on_chip and after.is_on_chip
    if not is_on_chip or before.layout[:1] == after.layout[:1]:
        return 0.0
    return max(before.num_bytes, after.num_bytes)


def _type_of(name: str, types: Mapping[str, str]) -> str:
    """The text of an operand's type; `x#1` is the second array of the tuple `x`."""
    producer, _, position = name.partition("#")
    text = types.get(producer, "")
    if not position:
        return text
    arrays = [found[0] for found in ARRAY.finditer(text)]
    place = int(position)
    return arrays[place] if place < len(arrays) else text


def _key(
    each: Instruction, operands: Sequence[str], body: Sequence[Instruction]
) -> str:
    """A hash of what decides a kernel's cost: its ops, and arrays as stored in memory.

    Kernels that differ only by names or the logical order of dims have equal hashes.
    """
    types = {line.name: line.type for line in body}
    lines = [_physical_line(each, operands)]
    lines += sorted(
        _physical_line(line, [types.get(name, "") for name in operands_of(line)])
        for line in body
        if line.opcode not in ("parameter", "bitcast")
    )
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def _physical_line(line: Instruction, operands: Sequence[str]) -> str:
    """An instruction's text without names, with the dims of arrays in memory order."""
    rest = _DROPPED.sub("", line.rest).partition(")")[2]
    labels = " ".join((*_labels(line, operands), *_dimensions(line, operands)))
    types = (_physical(text) for text in (line.type, *operands))
    return f"{line.opcode} {labels} {rest} {'; '.join(types)}"


def _physical(text: str) -> str:
    """HLO text in which each array type lists its dims in memory order."""
    return ARRAY.sub(
        lambda m: f"{m[1]}[{','.join(_in_order(m[2].split(','), m[3]))}]{m[4]}", text
    )


def _in_order(items: Sequence[str], layout: str | None) -> list[str]:
    """Sort items, one per dim, from the major dim to the minor one.

    layout: text of an HLO layout, such as `1,0`; without one the items keep their
        order.
    """
    order = [d for d in reversed(numbers(layout or "")) if d < len(items)]
    return [items[d] for d in order] if order else list(items)


def _dimensions(line: Instruction, operands: Sequence[str]) -> list[str]:
    """The dims in an instruction's `dimensions={...}`, as positions in memory order.

    Reductions and transposes name dims of their operand, other ops dims of their
    result.
    """
    named = DIMENSIONS.search(line.rest)
    if named is None or not operands:
        return []
    dims = [int(d) for d in named[1].split(",") if d]
    of_operand = line.opcode in ("reduce", "transpose")
    array = ARRAY.search(operands[0] if of_operand else line.type)
    result = ARRAY.search(line.type)
    if array is None or result is None:
        return [named[1]]
    if line.opcode == "transpose":
        dims = [int(d) for d in _in_order([str(d) for d in dims], result[3])]
    rank = range(array[2].count(",") + 1)
    places = _in_order([str(d) for d in rank], array[3])
    return [str(places.index(str(d))) for d in dims if str(d) in places]


def _labels(line: Instruction, operands: Sequence[str]) -> list[str]:
    """XLA's dim labels of a product's operands and result, letters in memory order.

    For example, `dim_labels=bf_io->bf` has one letter per dim of two operands and a
    result.
    """
    labels = LABELS.search(line.rest)
    if labels is None:
        return []
    texts = zip((*operands[:2], line.type), labels.groups(), strict=False)
    return [
        "".join(_in_order(letters, found[3] if (found := ARRAY.search(text)) else ""))
        for text, letters in texts
    ]


def _kind(each: Instruction, body: Sequence[Instruction]) -> str:
    """The name of a kernel's main op, and for products the labels of minor dims."""
    products = [line for line in body if line.opcode in PRODUCTS]
    if products:
        return f"product {_minors(products[0], body)}"
    opcodes = {line.opcode for line in body} or {each.opcode}
    for opcode in ("scatter", "gather", "sort", "reduce-window", "reduce", "transpose"):
        if opcode in opcodes:
            return opcode
    return "copy" if opcodes <= {"copy", "bitcast", "parameter"} else "elementwise"


def _minors(product: Instruction, body: Sequence[Instruction]) -> str:
    """Letters of the two minor dims, for both operands and the result of a product.

    The letters are those of XLA's dim labels: batch, feature, input, output, space. The
    most minor dim comes first.
    """
    types = {line.name: line.type for line in body}
    operands = [types.get(name, "") for name in operands_of(product)[:2]]
    return " ".join(letters[:-3:-1] for letters in _labels(product, operands))


def _features(
    operands: Sequence[Array],
    results: Sequence[Array],
    body: Sequence[Instruction],
    work: Mapping[str, float],
) -> Iterator[float]:
    """Numbers from which a kernel's cycles are guessed.

    The first four are logarithms: of the cycles that a linear model expects, of bytes
    moved, of elements of products, and of elements of all results. Then follow the
    share of bytes on chip, the number of different minor dims, and the number of copies
    and transposes. A byte on chip counts as a quarter of a byte in main memory.
    """
    every = [*operands, *results]
    on_chip = sum(a.num_bytes for a in every if a.is_on_chip)
    whole = sum(a.num_bytes for a in every)
    minors = {a.layout[0] for a in every if len(a.layout) > 1}
    yield math.log(expected_cycles(work, shipped_weights("kernel_weights.json")))
    yield math.log1p(whole - 0.75 * on_chip)
    products = (line for line in body if line.opcode in PRODUCTS)
    yield math.log1p(_result_elements(products))
    yield math.log1p(_result_elements(body))
    yield on_chip / max(whole, 1.0)
    yield float(len(minors))
    yield float(sum(line.opcode in ("transpose", "copy") for line in body))


def _result_elements(lines: Iterable[Instruction]) -> int:
    """The number of elements that instructions compute."""
    return sum(math.prod(a.dims) for line in lines for a in read_arrays(line.type))
