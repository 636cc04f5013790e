"""Kernels of an optimised program before code is generated, with features of their cost.

The compiler's estimate of a kernel depends on nothing but the kernel: the ops in it, the
types, layouts and memories of its operands and results. So a kernel that was compiled once
has a known cost in every other program (`kernel_costs`).
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
    """One HLO instruction that runs as a kernel.

    key: hash that is equal for kernels of equal cost.
    runs: executions per step, with the trip counts of loops.
    kind: the sort of kernel, by which similar kernels are found.
    features: logarithms of bytes and operations, see `_features`.
    is_async: whether it moves bytes while other kernels run, and has no estimate.
    num_bytes: bytes that it writes.
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
    """An array type in HLO: dims, minor-to-major layout, and whether it is on chip."""

    dtype: str
    dims: tuple[int, ...]
    layout: tuple[int, ...]
    is_on_chip: bool

    @property
    def num_bytes(self) -> float:
        """Bytes, with the two minor dims padded to tiles."""
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
    """The array types in a text."""
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
    """The kernels of an optimised program, in order."""
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
    # The type of a start has its operand as well, which is no smaller.
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
    """The text of an operand's type; `x#1` is the second array of a tuple."""
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
    """A hash of all that decides a kernel's cost: its ops, and arrays as stored in memory.

    Kernels that differ only by names or the logical order of dims have equal keys.
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
    """An instruction whose arrays have their dims in the order of memory."""
    rest = _NAMED.sub("", _plain(line.rest).partition(")")[2])
    labels = " ".join((*_labels(line, operands), *_dimensions(line, operands)))
    types = (_physical(text) for text in (line.type, *operands))
    return f"{line.opcode} {labels} {rest} {'; '.join(types)}"


def _physical(text: str) -> str:
    """Array types with dims major to minor."""
    return _ARRAY.sub(
        lambda m: f"{m[1]}[{','.join(_in_order(m[2].split(','), m[3]))}]{m[4]}", text
    )


def _in_order(items: Sequence[str], layout: str | None) -> list[str]:
    """Items, one per dim, sorted major to minor by a minor-to-major layout."""
    order = [d for d in reversed(_numbers(layout or "")) if d < len(items)]
    return [items[d] for d in order] if order else list(items)


def _dimensions(line: Instruction, operands: Sequence[str]) -> list[str]:
    """The dims that an op names, as positions in memory order.

    Reductions and transposes name dims of their operand, other ops dims of their result.
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
    """XLA's dim labels of both operands and the result of a product, major to minor."""
    labels = _LABELS.search(line.rest)
    if labels is None:
        return []
    texts = zip((*operands[:2], line.type), labels.groups(), strict=False)
    return [
        "".join(_in_order(letters, found[3] if (found := _ARRAY.search(text)) else ""))
        for text, letters in texts
    ]


def _plain(rest: str) -> str:
    """The rest of an instruction without attributes that do not change its cost."""
    rest = re.sub(
        r", (?:metadata|backend_config|sharding|calls|frontend_attributes)=.*", "", rest
    )
    return re.sub(r"/\*.*?\*/", "", rest)


def _kind(each: Instruction, body: Sequence[Instruction]) -> str:
    """The main op of a kernel; for products also the roles of their minor dims."""
    products = [line for line in body if line.opcode in ("convolution", "dot")]
    if products:
        return f"product {_minors(products[0], body)}"
    opcodes = {line.opcode for line in body} or {each.opcode}
    for opcode in ("scatter", "gather", "sort", "reduce-window", "reduce", "transpose"):
        if opcode in opcodes:
            return opcode
    return "copy" if opcodes <= {"copy", "bitcast", "parameter"} else "elementwise"


def _minors(product: Instruction, body: Sequence[Instruction]) -> str:
    """The roles of the two minor dims, for both operands and the result of a product.

    Roles are letters of XLA's dim labels: batch, feature, input, output, space.
    """
    types = {line.name: line.type for line in body}
    operands = [types.get(name, "") for name in _operands(product)[:2]]
    return " ".join(letters[:-3:-1] for letters in _labels(product, operands))


def _features(
    operands: Sequence[Array], results: Sequence[Array], body: Sequence[Instruction]
) -> Iterator[float]:
    """Logarithms of: bytes moved, operations, elements; shares and numbers after them.

    Bytes on chip count a quarter of those of main memory.
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
    """A likely number of operations of a product, from its result's size alone."""
    if line.opcode not in ("convolution", "dot"):
        return 0.0
    return float(sum(math.prod(a.dims) for a in read_arrays(line.type)))


def _log(value: float) -> float:
    return math.log1p(value)
