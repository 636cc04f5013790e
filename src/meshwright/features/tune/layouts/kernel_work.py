"""The work of a kernel, and the cycles that a linear model expects for it.

Work is counted in terms, such as bytes of main memory or multiplications, each in the
cycles that it takes at the chip's peak rate. HLO writes the layout of an array in
braces, dims minor to major: `bf16[8,128]{1,0}`.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from meshwright.machine import Machine
from meshwright.predict.roofline.matrix_unit import padded_extent
from meshwright.run.compilers.hlo import Instruction, bits_of

ARRAY = re.compile(r"(\w+)\[([\d,]*)\](?:\{([\d,]*)([^}]*)\})?")
LABELS = re.compile(r"dim_labels=(\w+)_(\w+)->(\w+)")
DIMENSIONS = re.compile(r"dimensions=\{([\d,]*)\}")
_OPERAND = re.compile(r"%([\w.\-]+(?:#\d+)?)")
_WINDOW = re.compile(r"window=\{([^}]*)\}")
_LANES, _SUBLANES = 128, 8

PRODUCTS = ("convolution", "dot")
_NO_WORK = frozenset(
    ("parameter", "bitcast", "constant", "tuple", "get-tuple-element")
    + ("broadcast", "iota")
)
_GATHERS = frozenset(
    ("gather", "scatter", "dynamic-slice", "dynamic-update-slice", "sort")
    + ("concatenate", "pad", "slice")
)


@dataclass(frozen=True, slots=True)
class Array:
    """An array type in HLO: dims, layout (minor to major), and whether on chip."""

    dtype: str
    dims: tuple[int, ...]
    layout: tuple[int, ...]
    is_on_chip: bool

    @property
    def num_elements(self) -> int:
        """Elements with the two minor dims padded to a TPU's tiles."""
        extents = [self.dims[d] for d in self.layout] or [*self.dims] or [1]
        extents[0] = padded_extent(extents[0], _LANES)
        if len(extents) > 1:
            extents[1] = padded_extent(extents[1], _SUBLANES)
        return math.prod(extents)

    @property
    def num_bytes(self) -> float:
        """Bytes in memory, with the two minor dims padded to a TPU's tiles."""
        extents = [self.dims[d] for d in self.layout] or [1]
        extents[0] = padded_extent(extents[0], _LANES) if len(extents) > 1 else 1024
        if len(extents) > 1 and extents[1] > _SUBLANES // 2:
            extents[1] = padded_extent(extents[1], _SUBLANES)
        return bits_of(self.dtype) / 8 * math.prod(extents)


def read_arrays(text: str) -> list[Array]:
    """The array types that occur in a piece of HLO text, in order."""
    return [
        Array(
            found[1],
            numbers(found[2]),
            numbers(found[3] or ""),
            "S(1)" in (found[4] or ""),
        )
        for found in ARRAY.finditer(text)
    ]


def numbers(text: str) -> tuple[int, ...]:
    """The numbers in a text such as `2,0,1`."""
    return tuple(int(n) for n in text.split(",") if n)


def operands_of(each: Instruction) -> list[str]:
    """Names of an instruction's operands."""
    inside, _, _ = each.rest.partition(")")
    return _OPERAND.findall(inside)


# -- the linear model ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rates:
    """What a chip does at most in one cycle of its clock."""

    bytes_per_cycle: float
    macs_per_cycle: float
    elements_per_cycle: float


def rates_of(machine: Machine) -> Rates:
    """The rates of a machine's chip; its clock counts as 1 GHz if it is unknown."""
    chip = machine.chip
    clock_hz = chip.clock_hz or 1e9
    return Rates(
        chip.hbm_bytes_per_s / clock_hz,
        chip.flops_per_s["bfloat16"] / 2 / clock_hz,
        chip.vector_flops_per_s / clock_hz,
    )


_LEAST_CYCLES = 100.0


def expected_cycles(work: Mapping[str, float], weights: Mapping[str, float]) -> float:
    """Cycles of a kernel by a linear model of its work, at least 100."""
    total = sum(weights.get(term, 0.0) * amount for term, amount in work.items())
    return max(_LEAST_CYCLES, total)


# -- terms of work ---------------------------------------------------------------------


def work_of(
    each: Instruction,
    operands: Sequence[Array],
    body: Sequence[Instruction],
    types: Mapping[str, str],
    rates: Rates,
) -> dict[str, float]:
    """The work of a kernel by term, in cycles at peak rates.

    operands: arrays that the kernel reads. body: instructions of its fusion; empty for
        a single instruction. types: types of the instructions around `each`, or in its
        body, by name.
    """
    arrays = [*operands, *read_arrays(each.type)]
    moved = sum(a.num_bytes for a in arrays if not a.is_on_chip)
    work = {"kernel": 1.0, "main memory": moved / rates.bytes_per_cycle}
    for line in body or [each]:
        if line.opcode not in _NO_WORK:
            inputs = [
                array
                for name in operands_of(line)
                for array in read_arrays(types.get(name.partition("#")[0], ""))[:1]
            ]
            for term, amount in _terms(line, inputs):
                is_product = line.opcode in PRODUCTS
                rate = rates.macs_per_cycle if is_product else rates.elements_per_cycle
                work[term] = work.get(term, 0.0) + amount / rate
    return work


def _terms(line: Instruction, inputs: Sequence[Array]) -> Iterator[tuple[str, float]]:
    """The terms of one instruction's work: multiplications, or elements."""
    results = read_arrays(line.type)
    size = float(results[0].num_elements) if results else 0.0
    if line.opcode in PRODUCTS:
        plain, padded = multiplications(line, inputs)
        yield "products", plain
        yield "padded products", padded
    elif line.opcode in ("reduce", "reduce-window") and inputs:
        named = DIMENSIONS.search(line.rest)
        dims = numbers(named[1]) if named else ()
        size = float(inputs[0].num_elements)
        yield "reduced elements", size
        if inputs[0].layout and inputs[0].layout[0] in dims:
            yield "reduced lanes", size
    elif line.opcode in ("copy", "transpose", "reshape") and inputs and results:
        size = max(size, float(inputs[0].num_elements))
        yield f"copied, {_changed(line, inputs[0], results[0])}", size
    else:
        yield "gathered" if line.opcode in _GATHERS else "elements", size


def _changed(line: Instruction, before: Array, after: Array) -> str:
    """Which of the two minor dims a copy changes: "minor", "second minor" or "order"."""
    minors = before.layout[:2], after.layout[:2]
    if line.opcode == "reshape":
        minors = tuple(tuple(a.dims[d] for d in a.layout[:2]) for a in (before, after))
    named = DIMENSIONS.search(line.rest)
    if line.opcode == "transpose" and named:
        permuted = numbers(named[1])
        minors = before.layout[:2], tuple(permuted[d] for d in after.layout[:2])
    if minors[0][:1] != minors[1][:1]:
        return "minor"
    return "order" if minors[0] == minors[1] else "second minor"


def multiplications(
    product: Instruction, inputs: Sequence[Array]
) -> tuple[float, float]:
    """Multiplications of a product: as they are, and with dims padded to tiles.

    XLA writes batched matrix products as convolutions in which dilation leaves one
    element of the window at each position, so those that meet zeros are not counted.
    """
    labels, results = LABELS.search(product.rest), read_arrays(product.type)
    if labels is None or len(inputs) < 2 or not results:
        return 0.0, 0.0
    image, weights, result = (
        dict(zip(letters, array.dims, strict=False))
        for letters, array in zip(
            labels.groups(), (*inputs[:2], results[0]), strict=True
        )
    )
    batch, features = result.get("b", 1), result.get("f", 1)
    depth = weights.get("i", 1)
    window = _window(product)
    positions = 1.0
    for dim in sorted(filter(str.isdigit, result)):
        taps = window.get("size", weights).get(dim, 1)
        dilation = window.get("lhs_dilate", {}).get(dim, 1)
        most = min(result[dim], image.get(dim, 1)) * taps / dilation
        positions *= max(1.0, most)
    rows = min(
        padded_extent(features, _LANES) * padded_extent(batch, _SUBLANES),
        padded_extent(batch, _LANES) * padded_extent(features, _SUBLANES),
    )
    return (
        positions * batch * features * depth,
        positions * rows * padded_extent(depth, _LANES),
    )


def _window(product: Instruction) -> dict[str, dict[str, int]]:
    """A convolution's window by property and space dim: size, lhs_dilate and others.

    Properties whose entries are no single numbers, such as `pad=1_1`, are left out.
    """
    window = _WINDOW.search(product.rest)
    parts = [part.partition("=") for part in window[1].split()] if window else []
    return {
        name: {str(dim): int(n) for dim, n in enumerate(values.split("x"))}
        for name, _, values in parts
        if all(n.isdigit() for n in values.split("x"))
    }
