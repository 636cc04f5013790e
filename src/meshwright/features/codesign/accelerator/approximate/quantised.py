"""A captured network in 8-bit integers, whose products come from tables.

Products sum integers exactly; ops between them are computed in the network's own floats.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from meshwright.errors import AcceleratorError
from meshwright.features.codesign.accelerator.approximate.dots import batched_sums
from meshwright.features.codesign.accelerator.approximate.multiplier import Multiplier
from meshwright.features.codesign.accelerator.approximate.products import NetworkProduct
from meshwright.features.codesign.accelerator.workload.products import CONVOLUTION
from meshwright.features.codesign.nas.rewriting.network import (
    ModelProgram,
    capture_network,
)
from meshwright.program.ir import Atom, Literal, Op, Program, Value
from meshwright.program.rules.factors import is_inexact
from meshwright.run.local.execute import run_program

_CALIBRATED = 1024
"""Inputs, at most, whose activations the scales cover."""


@dataclass(frozen=True, slots=True)
class CodeScale:
    """The numbers of 8-bit codes: `step` times (integer - zero)."""

    step: Any
    zero: Any
    signed: bool

    @classmethod
    def of(cls, low: Any, high: Any, signed: bool) -> CodeScale:
        """The scale that covers low to high; a signed one is symmetric."""
        low, high = np.minimum(low, 0.0), np.maximum(high, 0.0)
        if signed:
            step = np.maximum(-low, high) / 127
            return cls(np.where(step > 0, step, 1.0), np.zeros_like(step), True)
        step = (high - low) / 255
        step = np.where(step > 0, step, 1.0)
        return cls(step, np.round(-low / step), False)

    def integers(self, x: Any) -> Any:
        """The nearest integers minus zero, as float32."""
        least, most = (-127, 127) if self.signed else (0, 255)
        found = np.round(np.asarray(x, np.float32) / self.step) + self.zero
        return (np.clip(found, least, most) - self.zero).astype(np.float32)

    def codes(self, integers: Any) -> Any:
        """The codes of integers minus zero."""
        return (integers + self.zero).astype(np.int16).astype(np.uint8)


class QuantisedNetwork:
    """A network `fn(*weights, x) -> scores` with 8-bit products.

    Activations have one scale per product, found on the first inputs; weights have one
    per output channel. A signed scale is symmetric, another has a zero point.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        weights: Sequence[Any],
        inputs: Any,
        signed: bool = True,
        batch: int = 256,
    ) -> None:
        batch = min(batch, len(inputs))
        shape = jax.ShapeDtypeStruct((batch, *inputs.shape[1:]), inputs.dtype)
        self.network = capture_network(lambda p, x: fn(*p, x), tuple(weights), shape)
        leaves = jax.tree.leaves(tuple(weights))
        if any(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in leaves):
            raise AcceleratorError(
                "a weight is a shape alone; wanted arrays with the network's numbers"
            )
        self.weights = self.network.initial(leaves, jax.random.key(0))
        self.signed, self.batch = signed, batch
        self.products = tuple(_products(self.network))
        if not self.products:
            raise AcceleratorError("the network has no product that an array computes")
        self._parts = tuple(_parts(self.network.program, self.products))
        self._ranges: dict[tuple[int, int], tuple[float, float]] = {}
        self._kept: dict[int, tuple[Any, Any, Any]] = {}
        for begin in range(0, min(len(inputs), _CALIBRATED) - batch + 1, batch):
            self._run(inputs[begin : begin + batch], self._measured)

    def __call__(self, inputs: Any, routing: Sequence[Multiplier]) -> Any:
        """Scores of inputs, each product computed by its multiplier of `routing`."""
        if len(routing) != len(self.products):
            raise AcceleratorError(
                f"{len(routing)} multipliers for {len(self.products)} products"
            )
        for multiplier in routing:
            if multiplier.signed != self.signed:
                raise AcceleratorError(
                    f"{multiplier.name} is {'' if multiplier.signed else 'un'}signed, and "
                    "the network's integers are not"
                )
        found: list[Any] = []
        for begin in range(0, len(inputs), self.batch):
            part = inputs[begin : begin + self.batch]
            rest = [(0, self.batch - len(part))] + [(0, 0)] * (part.ndim - 1)
            scores = self._run(
                np.pad(part, rest), lambda i, d, w: self._summed(i, d, w, routing[i])
            )
            found.append(scores[: len(part)])
        return np.concatenate(found)

    def _run(self, inputs: Any, product_fn: Callable[[int, Any, Any], Any]) -> Any:
        """The scores, where `product_fn` computes product i of its two operands."""
        program = self.network.program
        env: dict[Atom, Any] = dict(
            zip(program.inputs, (*self.weights, inputs), strict=True)
        )
        env.update({**program.constants})
        for number, (part, run_fn) in enumerate(self._parts):
            env.update(
                zip(part.outputs, run_fn(*(env[v] for v in part.inputs)), strict=True)
            )
            if number < len(self.products):
                product = self.products[number]
                operands = [np.asarray(_read(env, a)) for a in product.op.operands]
                data, weight = operands[product.data], operands[product.weight]
                result = product.op.results[0]
                found = product_fn(number, data, weight)
                env[result] = jnp.asarray(found, result.dtype)
        return np.asarray(_read(env, program.outputs[0]), np.float32)

    def _measured(self, number: int, data: Any, weight: Any) -> Any:
        """The result in floats; widens the ranges of both operands."""
        product = self.products[number]
        for side, x in enumerate((data, weight)):
            low, high = self._ranges.get((number, side), (0.0, 0.0))
            self._ranges[number, side] = (
                min(low, float(x.min())),
                max(high, float(x.max())),
            )
        left, right = product.sides(data, weight)
        return product.result(np.einsum("bkm,bkn->bnm", left, right, optimize=True))

    def _summed(
        self, number: int, data: Any, weight: Any, multiplier: Multiplier
    ) -> Any:
        product = self.products[number]
        scale = CodeScale.of(*self._ranges[number, 0], self.signed)
        integers = scale.integers(data)
        fixed = self._kept.get(number)
        if fixed is None:
            fixed = self._quantised_weight(number, data, weight)
        w, codes, other = fixed
        x = product.sides(integers, weight)[0]
        sums = batched_sums(scale.codes(x), codes, multiplier.products)
        if not self.signed:  # sums of (a - zero) (b - zero) from those of a b
            a, b = x + scale.zero, w + other.zero
            sums = sums - np.swapaxes(
                other.zero * np.ones_like(w[:, :1]), 1, 2
            ) * a.sum(1, keepdims=True)
            sums = sums - scale.zero * b.sum(1)[:, :, None]
            zeros = np.broadcast_to(other.zero, w[:, :1].shape)
            sums = sums + w.shape[1] * scale.zero * np.swapaxes(zeros, 1, 2)
        steps = np.broadcast_to(other.step, w[:, :1].shape)
        return product.result(sums * (scale.step * np.swapaxes(steps, 1, 2)))

    def _quantised_weight(self, number: int, data: Any, weight: Any) -> Any:
        """Integers and codes [B, K, N] of the other operand, and its scale."""
        product = self.products[number]
        if not product.is_fixed:
            scale = CodeScale.of(*self._ranges[number, 1], self.signed)
            w = product.sides(data, scale.integers(weight))[1]
            return w, scale.codes(w), scale
        floats = product.sides(data, weight)[1]
        ends = (floats.min(1, keepdims=True), floats.max(1, keepdims=True))
        scale = CodeScale.of(*ends, self.signed)
        w = scale.integers(floats)
        self._kept[number] = made = (w, scale.codes(w), scale)
        return made


def _read(env: Mapping[Atom, Any], atom: Atom) -> Any:
    return atom.value if isinstance(atom, Literal) else env[atom]


def _products(network: ModelProgram) -> Iterator[NetworkProduct]:
    """The products of a network that reads its batch, in order."""
    names = {
        v: w.name for v, w in zip(network.program.inputs, network.weights, strict=False)
    }
    for op in network.program.ops:
        if not _is_product(op, network):
            continue
        sides = [atom in network.activations for atom in op.operands[:2]]
        data = 0 if sides[0] else 1
        if op.kind == CONVOLUTION and data == 1:
            continue
        other = op.operands[1 - data]
        name = names.get(other, "") if isinstance(other, Value) else ""
        name = name or f"{op.kind} {op.source}"
        yield NetworkProduct(op, name, data, 1 - data, not all(sides))


def _is_product(op: Op, network: ModelProgram) -> bool:
    """Whether an array computes the op: a product of floats that reads the batch."""
    if op.kind not in ("dot_general", CONVOLUTION):
        return False
    if op.params.get("batch_group_count", 1) != 1:
        return False
    is_float = all(is_inexact(atom.dtype) for atom in op.operands[:2])
    return is_float and not network.activations.isdisjoint(op.operands[:2])


def _parts(
    program: Program, products: Sequence[NetworkProduct]
) -> Iterator[tuple[Program, Any]]:
    """The ops between products as compiled programs, one more than there are products."""
    cuts = {product.op: i for i, product in enumerate(products)}
    groups: list[list[Op]] = [[]]
    for op in program.ops:
        if op in cuts:
            groups.append([])
        else:
            groups[-1].append(op)
    needed: list[set[Atom]] = [set(program.outputs)]
    for group, product in zip(reversed(groups[1:]), reversed(products), strict=True):
        later = set(needed[0]) | set(product.op.operands)
        needed.insert(0, later.union(*(op.operands for op in group)))
    for group, later in zip(groups, needed, strict=True):
        made = [r for op in group for r in op.results]
        reads = [a for op in group for a in op.operands if isinstance(a, Value)]
        inputs = tuple(v for v in dict.fromkeys(reads) if v not in set(made))
        outputs = tuple(v for v in made if v in later)
        part = Program(inputs, tuple(group), outputs)
        yield part, jax.jit(lambda *given, part=part: run_program(part, given))
