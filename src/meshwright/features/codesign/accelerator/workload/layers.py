"""A traced program as layers: kernels with a product each, and vector work around it.

Layers are the fusions of XLA's rules (`predict/compilers`), so elementwise ops run with the
product that reads or writes their values.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from meshwright.errors import AcceleratorError
from meshwright.features.codesign.accelerator.mapping.product import ArrayProduct
from meshwright.features.codesign.accelerator.workload.products import (
    PRODUCTS,
    has_product,
    is_depthwise,
    product_of,
)
from meshwright.predict.compilers.model.compilation import compile_program
from meshwright.predict.compilers.model.fusion import Fusion
from meshwright.predict.compilers.xla.shared_passes import PLAIN
from meshwright.program.analysis.executions import num_iterations
from meshwright.program.capture.capture import capture
from meshwright.program.ir import Atom, Op, Program, Value, itemsize_bytes
from meshwright.program.ops import Trait, has_trait, work_of
from meshwright.program.rules.factors import is_inexact

_FUNCTION_FLOPS = 10
"""Operations of a vector unit for an exponential, a root or their like."""


@dataclass(frozen=True, slots=True)
class LayerValue:
    """A value that layers exchange.

    is_weight: whether it is an argument of the program, or a part of one. Then it is in
        main memory before the program begins.
    times: how many different such tensors there are: one for each iteration of a loop
        that reads its own weights.
    """

    number: int
    num_bytes: float
    is_weight: bool
    times: int = 1


@dataclass(frozen=True, slots=True)
class Layer:
    """One kernel of a program.

    product: its product; `None` if only the vector units work.
    depthwise_flops: operations of a depthwise convolution, which the vector units can do
        in place of the product; 0 for other layers.
    vector_flops: operations of the vector units beside the product.
    reads, writes: positions in `Workload.tensors`.
    left, right: positions of the product's operands among these, or `None`.
    times: executions in one call of the program.
    shares: of values of which an execution reads or writes only a part, the share: of a
        table that is read at indices, of an array of which a slice is read or replaced.
    """

    name: str
    product: ArrayProduct | None
    depthwise_flops: float
    vector_flops: float
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    left: int | None = None
    right: int | None = None
    times: int = 1
    shares: Mapping[int, float] = field(default_factory=dict[int, float])


@dataclass(frozen=True, slots=True)
class Workload:
    """The layers of a program in the order in which they run.

    itemsize: bytes of a number in the operands of its products.
    """

    name: str
    layers: tuple[Layer, ...]
    tensors: tuple[LayerValue, ...]
    itemsize: int = 2

    def in_format(self, itemsize: int) -> Workload:
        """The workload with numbers of another size, as a design computes it."""
        if itemsize == self.itemsize:
            return self
        factor = itemsize / self.itemsize
        return Workload(
            self.name,
            tuple(_scaled_layer(layer, factor) for layer in self.layers),
            tuple(replace(t, num_bytes=t.num_bytes * factor) for t in self.tensors),
            itemsize,
        )

    @property
    def digest(self) -> str:
        """A short text that tells the workload from others, whatever its names."""
        layers = [replace(layer, name="") for layer in self.layers]
        text = repr((layers, self.tensors, self.itemsize))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def multiply_adds(self) -> float:
        """Multiplications of all products in one call."""
        return math.fsum(
            layer.times * layer.product.extents.multiply_adds
            for layer in self.layers
            if layer.product is not None
        )

    @property
    def weight_bytes(self) -> float:
        """Bytes of all weights that layers read."""
        return math.fsum(t.num_bytes * t.times for t in self.tensors if t.is_weight)


def _scaled_layer(layer: Layer, factor: float) -> Layer:
    made = layer.product
    if made is None:
        return layer
    product = replace(
        made,
        input_bytes=made.input_bytes * factor,
        weight_bytes=made.weight_bytes * factor,
        output_bytes=made.output_bytes * factor,
    )
    return replace(layer, product=product)


def workload_of(
    fn: Callable[..., Any], args: Sequence[Any], name: str = ""
) -> Workload:
    """The layers of `fn(*args)`; args are arrays or `jax.ShapeDtypeStruct`s."""
    program = capture(fn, args).program
    compiled = compile_program(program, PLAIN, (1, 1))
    reading = _Reading()
    reading.note_arguments(compiled.program)
    layers = tuple(reading.layers(compiled.fusions, 1))
    title = name or getattr(fn, "__name__", "")
    values = {number for layer in layers for number in (*layer.reads, *layer.writes)}
    if not any(reading.tensors[number].num_bytes for number in values):
        raise AcceleratorError(f"{title or 'the program'} computes nothing")
    tensors = _without_data(layers, reading.tensors)
    return Workload(title, layers, tensors, reading.operand_itemsize())


def _without_data(
    layers: Sequence[Layer], tensors: Sequence[LayerValue]
) -> tuple[LayerValue, ...]:
    """The tensors, where arguments that stream through products count as no weights."""
    data = {
        layer.left
        for layer in layers
        if layer.product is not None
        and layer.left is not None
        and (
            layer.product.is_fixed
            or (layer.right is not None and tensors[layer.right].is_weight)
        )
    }
    return tuple(
        replace(tensor, is_weight=tensor.is_weight and tensor.number not in data)
        for tensor in tensors
    )


@dataclass(slots=True)
class _Reading:
    """Numbers the values of a program while its fusions become layers."""

    tensors: list[LayerValue] = field(default_factory=list[LayerValue])
    numbers: dict[Value, int] = field(default_factory=dict[Value, int])
    arguments: dict[Value, int] = field(default_factory=dict[Value, int])
    names: dict[str, int] = field(default_factory=dict[str, int])
    itemsize: int = 0

    def note_arguments(self, program: Program) -> None:
        """Count the arguments and constants of the program as weights."""
        for value in (*program.inputs, *program.constants):
            self.arguments[value] = 1

    def operand_itemsize(self) -> int:
        """Bytes of a number in the operands of products, or in the widest argument."""
        floats = [v for v in self.arguments if is_inexact(v.dtype)]
        sizes = [itemsize_bytes(v.dtype) for v in floats or self.arguments]
        return self.itemsize or max(sizes, default=1)

    def layers(self, fusions: Sequence[Fusion], times: int) -> Iterator[Layer]:
        for fusion in fusions:
            if fusion.bodies:
                yield from self._inside(fusion, times)
            elif fusion.reads or fusion.writes:
                yield self._layer(fusion, times)

    def _inside(self, fusion: Fusion, times: int) -> Iterator[Layer]:
        """Layers of a loop's body, or of the branch of a `cond` with the most work."""
        root = fusion.root
        trips = num_iterations(root)
        for wire in root.wires:
            if wire.operand is None:
                continue
            operand = root.operands[wire.operand]
            for body, position in wire.inputs:
                inside = root.bodies[body].inputs[position]
                if isinstance(operand, Value) and operand in self.arguments:
                    own = trips if wire.is_stacked else 1
                    self.arguments[inside] = self.arguments[operand] * own
                elif isinstance(operand, Value) and not wire.is_stacked:
                    self.numbers[inside] = self._number(operand)
        bodies = fusion.bodies
        if root.kind == "cond":
            bodies = (max(bodies, key=_flops),)
        for body in bodies:
            yield from self.layers(body, times * trips)

    def _number(self, value: Value) -> int:
        if value not in self.numbers:
            self.numbers[value] = len(self.tensors)
            size = math.prod(value.shape) * itemsize_bytes(value.dtype)
            own = self.arguments.get(value, 0)
            made = LayerValue(len(self.tensors), float(size), own > 0, max(1, own))
            self.tensors.append(made)
        return self.numbers[value]

    def _layer(self, fusion: Fusion, times: int) -> Layer:
        roots = [part.root for part in fusion.parts]
        op = next((root for root in roots if has_product(root)), None)
        reads = tuple(dict.fromkeys(self._number(value) for value in fusion.reads))
        writes = tuple(dict.fromkeys(self._number(value) for value in fusion.writes))
        work = fusion.work
        flops = work.flops + _FUNCTION_FLOPS * work.transcendentals
        own = 0 if op is None else work_of(op).flops
        left, right = (None, None) if op is None else self._sides(op, fusion)
        for root in roots:
            if root.kind in PRODUCTS:  # small ones, too, which no array computes
                size = itemsize_bytes(root.operands[0].dtype)
                self.itemsize = max(self.itemsize, size)
        return Layer(
            name=self._name(fusion.root),
            product=None if op is None else product_of(op),
            depthwise_flops=own if op is not None and is_depthwise(op) else 0.0,
            vector_flops=max(0.0, flops - own),
            reads=reads,
            writes=writes,
            left=left,
            right=right,
            times=times,
            shares={self.numbers[v]: share for v, share in shares_of(fusion).items()},
        )

    def _sides(self, op: Op, fusion: Fusion) -> tuple[int | None, int | None]:
        """The tensors from which the operands of a product come: of each, the largest."""
        sides = fusion.sides or tuple((v,) for v in op.operands[:2])
        found: list[int | None] = []
        for side in sides[:2]:
            known = [self.numbers[v] for v in side if v in self.numbers]
            sizes = {number: self.tensors[number].num_bytes for number in known}
            found.append(max(sizes, key=lambda n: sizes[n]) if sizes else None)
        if found[0] is None:  # computed inside of the kernel from what it reads
            rest = [n for v in fusion.reads if (n := self.numbers[v]) != found[1]]
            found[0] = max(rest, key=lambda n: self.tensors[n].num_bytes, default=None)
        return found[0], found[1]

    def _name(self, op: Op) -> str:
        scope = getattr(op.source, "scope", ())
        base = "/".join(scope) or str(op.source) or op.kind
        count = self.names[base] = self.names.get(base, 0) + 1
        return base if count == 1 else f"{base} ({count})"


def shares_of(fusion: Fusion) -> dict[Value, float]:
    """The share of the elements of each value that a fusion moves only in part.

    As in `accessed_values` of `predict`, an array that is updated in place is not read.
    """
    root, shares = fusion.root, fusion.shares
    update = fusion.update
    if has_trait(root.kind, Trait.READS_AT_INDEX):
        table = root.operands[0]
        if isinstance(table, Value) and table in fusion.reads:
            shares[table] = _share(root.results[0], table)
    elif update is None and root.kind == "dynamic_update_slice":
        update = root.operands[1]
    if update is not None and fusion.in_place is not None:
        shares |= {value: _share(update, value) for value in fusion.writes}
        shares[fusion.in_place] = 0.0
    return shares


def _share(part: Atom, whole: Value) -> float:
    size = math.prod(whole.shape)
    return min(1.0, math.prod(part.shape) / size) if size else 1.0


def _flops(fusions: Sequence[Fusion]) -> float:
    return sum(fusion.work.flops for fusion in fusions)
