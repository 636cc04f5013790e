"""Kernels in the HLO text of an optimised program, with features of their cost.

The text is what the compiler has before it generates code. The compiler's estimate of a
kernel depends on nothing but the kernel: the ops in it, and the types, layouts and
memories of its operands and results. So a kernel that was compiled once has a known
cost in every other program (`kernel_costs`). HLO writes the layout of an array in
braces, dims minor to
major: `bf16[8,128]{1,0}`.
"""

import hashlib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from meshwright.run.compilers.hlo import Instruction, Module, control_runs, parse_hlo

_FREE = frozenset(
    ("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "while", "call")
    + ("conditional", "after-all", "partition-id", "replica-id", "opt-barrier")
)
_ARRAY = re.compile(r"(\w+)\[([\d,]*)\](?:\{([\d,]*)([^}]*)\})?")
_CALLS = re.compile(r"calls=%?([\w.\-]+)")
_OPERAND = re.compile(r"%([\w.\-]+(?:#\d+)?)")
_LABELS = re.compile(r"dim_labels=(\w+)_(\w+)->(\w+)")
_DIMENSIONS = re.compile(r"dimensions=\{([\d,]*)\}")
_NAMED = re.compile(r", (?:dim_labels=[^,]*|dimensions=\{[^}]*\}|to_apply=%?[\w.\-]+)")
_BITS = {"pred": 8, "s4": 4, "u4": 4, "bf16": 16}
_LANES, _SUBLANES = 128, 8


@dataclass(frozen=True, slots=True)
class HloKernel:
    """One HLO instruction, such as a fusion, that runs as a kernel.

    key: hash that is equal for kernels of equal cost.
    runs: executions per step; a loop's body counts once per iteration.
    kind: name of the main op; guesses prefer kernels of the same kind.
    features: logarithms of bytes and operations, see `_features`.
    is_async: whether it runs beside other kernels, without an estimate of cycles.
    num_bytes: bytes that it writes in one execution.
    """

    name: str
    key: str
    runs: int
    kind: str
    features: tuple[float, ...]
    is_async: bool
    num_bytes: float


@dataclass(frozen=True, slots=True)
class Array:
    """An array type in HLO: dims, layout (minor to major), and whether on chip."""

    dtype: str
    dims: tuple[int, ...]
    layout: tuple[int, ...]
    is_on_chip: bool

    @property
    def num_bytes(self) -> float:
        """Bytes in memory, with the two minor dims padded to a TPU's tiles."""
        digits = self.dtype.lstrip("abcdefghijklmnopqrstuvwxyz").split("e")[0]
        bits = _BITS.get(self.dtype) or int(digits or 32)
        extents = [self.dims[d] for d in self.layout] or [1]
        extents[0] = (
            math.ceil(extents[0] / _LANES) * _LANES if len(extents) > 1 else 1024
        )
        if len(extents) > 1:
            rows = _SUBLANES if extents[1] > _SUBLANES // 2 else extents[1]
            extents[1] = math.ceil(extents[1] / rows) * rows
        return bits / 8 * math.prod(extents)


def read_arrays(text: str) -> list[Array]:
    """The array types that occur in a piece of HLO text, in order."""
    return [
        Array(
            found[1],
            _numbers(found[2]),
            _numbers(found[3] or ""),
            "S(1)" in (found[4] or ""),
        )
        for found in _ARRAY.finditer(text)
    ]


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(n) for n in text.split(",") if n)


def read_kernels(text: str) -> list[HloKernel]:
    """The kernels in the HLO text of an optimised program, in order."""
    module = parse_hlo(text)
    types = {
        each.name: each.type for lines in module.computations.values() for each in lines
    }
    found: list[HloKernel] = []
    for name, runs in control_runs(module).items():
        for each in module.computations[name]:
            if each.opcode not in _FREE and not each.opcode.endswith("-done"):
                found.append(_kernel(each, runs, module, types))
    return found


def _kernel(
    each: Instruction, runs: int, module: Module, types: Mapping[str, str]
) -> HloKernel:
    operands = [_type_of(name, types) for name in _operands(each)]
    called = _CALLS.search(each.rest)
    body = module.computations.get(called[1], ()) if called else ()
    results = read_arrays(each.type)
    is_start = each.opcode.endswith("-start")
    sizes = sorted(array.num_bytes for array in results)
    # The type of a start op also contains its operand, which is no smaller.
    place = -2 if is_start else -1
    arrays = [array for text in operands for array in read_arrays(text)]
    return HloKernel(
        name=each.name,
        key=_key(each, operands, body),
        runs=runs,
        kind=_kind(each, body),
        features=tuple(_features(arrays, results, body)),
        is_async=is_start or each.opcode == "custom-call",
        num_bytes=sizes[place] if len(sizes) >= -place else 0.0,
    )


def _operands(each: Instruction) -> list[str]:
    inside, _, _ = each.rest.partition(")")
    return _OPERAND.findall(inside)


def _type_of(name: str, types: Mapping[str, str]) -> str:
    """The text of an operand's type; `x#1` is the second array of the tuple `x`."""
    producer, _, position = name.partition("#")
    text = types.get(producer, "")
    if not position:
        return text
    arrays = [found[0] for found in _ARRAY.finditer(text)]
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
        _physical_line(line, [types.get(name, "") for name in _operands(line)])
        for line in body
        if line.opcode not in ("parameter", "bitcast")
    )
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def _physical_line(line: Instruction, operands: Sequence[str]) -> str:
    """An instruction's text without names, with the dims of arrays in memory order."""
    rest = _NAMED.sub("", _plain(line.rest).partition(")")[2])
    labels = " ".join((*_labels(line, operands), *_dimensions(line, operands)))
    types = (_physical(text) for text in (line.type, *operands))
    return f"{line.opcode} {labels} {rest} {'; '.join(types)}"


def _physical(text: str) -> str:
    """HLO text in which each array type lists its dims in memory order."""
    return _ARRAY.sub(
        lambda m: f"{m[1]}[{','.join(_in_order(m[2].split(','), m[3]))}]{m[4]}", text
    )


def _in_order(items: Sequence[str], layout: str | None) -> list[str]:
    """Sort items, one per dim, from the major dim to the minor one.

    layout: text of an HLO layout, such as `1,0`; without one the items keep their
        order.
    """
    order = [d for d in reversed(_numbers(layout or "")) if d < len(items)]
    return [items[d] for d in order] if order else list(items)


def _dimensions(line: Instruction, operands: Sequence[str]) -> list[str]:
    """The dims in an instruction's `dimensions={...}`, as positions in memory order.

    Reductions and transposes name dims of their operand, other ops dims of their
    result.
    """
    named = _DIMENSIONS.search(line.rest)
    if named is None or not operands:
        return []
    dims = [int(d) for d in named[1].split(",") if d]
    of_operand = line.opcode in ("reduce", "transpose")
    found = _ARRAY.search(operands[0] if of_operand else line.type)
    result = _ARRAY.search(line.type)
    if found is None or result is None:
        return [named[1]]
    if line.opcode == "transpose":
        dims = [int(d) for d in _in_order([str(d) for d in dims], result[3])]
    rank = range(found[2].count(",") + 1)
    places = _in_order([str(d) for d in rank], found[3])
    return [str(places.index(str(d))) for d in dims if str(d) in places]


def _labels(line: Instruction, operands: Sequence[str]) -> list[str]:
    """XLA's dim labels of a product's operands and result, letters in memory order.

    For example, `dim_labels=bf_io->bf` has one letter per dim of two operands and a
    result.
    """
    labels = _LABELS.search(line.rest)
    if labels is None:
        return []
    texts = zip((*operands[:2], line.type), labels.groups(), strict=False)
    return [
        "".join(_in_order(letters, found[3] if (found := _ARRAY.search(text)) else ""))
        for text, letters in texts
    ]


def _plain(rest: str) -> str:
    """The text after an instruction's opcode, without metadata and comments.

    The parts that are dropped do not change the instruction's cost.
    """
    rest = re.sub(
        r", (?:metadata|backend_config|sharding|calls|frontend_attributes)=.*", "", rest
    )
    return re.sub(r"/\*.*?\*/", "", rest)


def _kind(each: Instruction, body: Sequence[Instruction]) -> str:
    """The name of a kernel's main op, and for products the labels of minor dims."""
    products = [line for line in body if line.opcode in ("convolution", "dot")]
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
    operands = [types.get(name, "") for name in _operands(product)[:2]]
    return " ".join(letters[:-3:-1] for letters in _labels(product, operands))


def _features(
    operands: Sequence[Array], results: Sequence[Array], body: Sequence[Instruction]
) -> Iterator[float]:
    """Numbers from which a kernel's cycles are guessed.

    The first three are logarithms: of bytes moved, of operations in products, and of
    elements of all results. Then follow the share of bytes on chip, the number of
    different minor dims, and the number of copies and transposes. A byte on chip counts
    as a quarter of a byte in main memory.
    """
    every = [*operands, *results]
    on_chip = sum(a.num_bytes for a in every if a.is_on_chip)
    whole = sum(a.num_bytes for a in every)
    minors = {a.layout[0] for a in every if len(a.layout) > 1}
    yield _log(whole - 0.75 * on_chip)
    yield _log(sum(map(_product_flops, body)))
    yield _log(sum(math.prod(a.dims) for line in body for a in read_arrays(line.type)))
    yield on_chip / max(whole, 1.0)
    yield float(len(minors))
    yield float(sum(line.opcode in ("transpose", "copy") for line in body))


def _product_flops(line: Instruction) -> float:
    """Elements of a product's result, in place of its FLOPs; 0 for other ops."""
    if line.opcode not in ("convolution", "dot"):
        return 0.0
    return float(sum(math.prod(a.dims) for a in read_arrays(line.type)))


def _log(value: float) -> float:
    return math.log1p(value)
