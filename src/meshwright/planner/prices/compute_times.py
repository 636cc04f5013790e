"""Seconds that a node (op) computes on one device, for each way to partition it."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np

from meshwright.machine import Chip, Mesh
from meshwright.partitioner.propagate import Node
from meshwright.planner.prices.op_prices import ArrayKernel, OpPrices
from meshwright.planner.strategies.strategy import DimAxes, Strategy, StrategySet
from meshwright.predict.roofline.kernel_time import (
    KernelTraffic,
    kernel_time,
    matrix_s,
    roofline_s,
    vector_flops,
)
from meshwright.program.ir import Atom, Op, Value, num_bytes
from meshwright.program.ops import (
    COLLECTIVES,
    Builder,
    FactorRule,
    OpCut,
    OpWork,
    Trait,
    has_trait,
    work_of,
)
from meshwright.program.rules.factors import local_shape
from meshwright.program.rules.pallas_work import kernel_of
from meshwright.program.rules.registry import cost_of
from meshwright.program.rules.rule import Dims
from meshwright.search.arrays import Floats, Ints

type _FactorAxes = tuple[tuple[int, tuple[str, ...]], ...]

type _Collective = tuple[str, tuple[str, ...], float]
"""A collective: its kind, its mesh axes, and the bytes of operand or result.

The larger of the two counts.
"""


@dataclass(slots=True)
class _LocalWork:
    """The work of an op on one device, for each distinct partitioning of its factors.

    Several strategies share a partitioning, and differ only in how they reduce partial
    results.
    cuts: the distinct partitionings.
    vector_flops: operations in the vector unit, one entry per partitioning.
    matrix_s: seconds in the matrix unit, one entry per partitioning.
    cut_of: for each strategy, the number of its partitioning.
    """

    cuts: tuple[OpCut, ...]
    vector_flops: Floats
    matrix_s: Floats
    cut_of: Ints
    _shares: dict[Dims, Floats] = field(default_factory=dict[Dims, Floats])

    def share(self, dims: Dims) -> Floats:
        """The share of a value that one device has, one entry per partitioning.

        dims: factors of the value's dims.
        """
        if dims not in self._shares:
            factors = [f for fs in dims for f in fs]
            self._shares[dims] = np.array(
                [1 / math.prod([cut.parts[f] for f in factors]) for cut in self.cuts]
            )
        return self._shares[dims]


def _op_seconds(
    op: Op, node: Node, work: _LocalWork, prices: OpPrices, chip: Chip
) -> Floats:
    """Seconds of an op on one device, one entry per partitioning of the op.

    They are a sum over the op's work and over the values that it reads and writes,
    linear in the device's shares. The sum is raised to the roofline if it is below.
    """
    flop_s = prices.vector_s.get(op, 0.0)
    seconds = prices.launch_s.get(op, 0.0) + flop_s * work.vector_flops
    seconds += prices.matrix.get(op, 0.0) * work.matrix_s
    memory_s, vector_s = 0.0, work.vector_flops / chip.vector_flops_per_s
    accesses = prices.accesses.get(op, {})
    for value, dims in _accessed_values(op, node):
        if value in accesses:
            price, share = accesses[value], work.share(dims)
            seconds += price.seconds * share
            memory_s += price.memory_s * share
            vector_s += price.vector_s * share
    if op not in prices.hidden:
        # The other ops of the fusion may hide this op's time up to its time at the
        # uniform partition, which is therefore subtracted.
        alone_s = roofline_s(work.matrix_s, memory_s, vector_s)
        seconds = np.maximum(seconds, alone_s - _uniform_partition_s(op, prices, chip))
    return seconds


def _uniform_partition_s(op: Op, prices: OpPrices, chip: Chip) -> float:
    """Seconds of an op alone, without its fusion, if devices share it equally."""
    accesses = prices.accesses.get(op, {}).values()
    vector_s = vector_flops(op, work_of(op), chip) / chip.vector_flops_per_s
    vector_s += sum(price.vector_s for price in accesses)
    memory_s = sum(price.memory_s for price in accesses)
    whole = float(roofline_s(matrix_s(op, chip), memory_s, vector_s))
    return whole / prices.num_devices


def _array_kernels_s(
    kernels: Sequence[ArrayKernel], num_parts: int, chip: Chip
) -> float:
    """Seconds per iteration of the kernels of a loop's array, split into equal parts."""
    seconds = 0.0
    for root, moved_bytes, runs in kernels:
        traffic = KernelTraffic(moved_bytes / num_parts)
        seconds += runs * kernel_time(root, OpWork(0, 0), traffic, chip).seconds
    return seconds


class ComputeTimes:
    """Predicted seconds that nodes (ops) compute on one chip of a mesh."""

    def __init__(self, chip: Chip, mesh: Mesh, prices: OpPrices) -> None:
        self.chip = chip
        self.mesh = mesh
        self.prices = prices
        self.parts = cache(self._num_parts)
        self._work: dict[tuple[int | None, StrategySet], _LocalWork] = {}
        self._expanded: dict[tuple[int | None, _FactorAxes], list[_Collective]] = {}

    def seconds(self, node: Node, choices: StrategySet) -> Floats:
        """Seconds of one execution of a node without collectives, per strategy."""
        op, rule = node.op, node.rule
        if op is not None and node.wire is not None:
            kernels = self.prices.array_kernels.get((op, node.wire), ())
            parts = [self.parts(tuple(axes for _, axes in s.axes)) for s in choices]
            return np.array([_array_kernels_s(kernels, n, self.chip) for n in parts])
        if op is None or rule is None or has_trait(op.kind, Trait.ALIASES_OPERAND):
            return np.zeros(len(choices))
        work = self._local_work(node, choices)
        if kernel_of(op) is not None or cost_of(op) is not None:
            seconds = np.array([self._kernel_s(node, cut) for cut in work.cuts])
            return seconds[work.cut_of]
        seconds = _op_seconds(op, node, work, self.prices, self.chip)
        small = self.prices.small_batch
        if small is not None and op in small.images:
            value, dim = small.images[op]
            dims = next(dims for v, dims in _accessed_values(op, node) if v is value)
            images = value.shape[dim] * work.share((dims[dim],))
            is_small = images < small.max_images + 0.5  # whole numbers but for rounding
            if is_small.any():
                in_space = _op_seconds(op, node, work, small.prices, self.chip)
                seconds = np.where(is_small, in_space, seconds)
        return seconds[work.cut_of]

    def collectives(self, node: Node, strategy: Strategy) -> list[_Collective]:
        """Collectives inside of a node's own computation, such as halo exchanges.

        They are written by the `expand` function of the op's factor rule.
        """
        key = node.signature, strategy.axes
        if key not in self._expanded:
            self._expanded[key] = self._expand(node, strategy)
        return self._expanded[key]

    def _expand(self, node: Node, strategy: Strategy) -> list[_Collective]:
        op, rule = node.op, node.rule
        if op is None or rule is None or rule.expand is None:
            return []
        cut = self._cut(rule, strategy.axes)
        if not _splits_special(rule, cut):
            return []
        builder = Builder(self.mesh)
        rule.expand(builder, op, _local_atoms(op.operands, rule.operands, cut), cut)
        return [
            (each.kind, tuple(each.params["axes"]), _larger_bytes(each, self.prices))  # pyright: ignore[reportArgumentType]
            for each in builder.ops
            if each.kind in COLLECTIVES
        ]

    def _num_parts(self, split: DimAxes) -> int:
        """The number of parts of a value whose dims are split by these mesh axes."""
        return math.prod(self.mesh.size(axes) for axes in split)

    def _cut(self, rule: FactorRule, axes: _FactorAxes) -> OpCut:
        by_factor, every = dict(axes), range(len(rule.sizes))
        return OpCut(
            tuple(by_factor.get(f, ()) for f in every),
            tuple(self.mesh.size(by_factor.get(f, ())) for f in every),
        )

    def _kernel_s(self, node: Node, cut: OpCut) -> float:
        local = _local_op(node, cut)
        cost, moved = cost_of(local), 0.0
        if cost is not None:
            every = sum(map(num_bytes, (*local.operands, *local.results)))
            moved = every if cost.num_bytes is None else cost.num_bytes
        traffic = KernelTraffic(moved)
        return kernel_time(local, work_of(local), traffic, self.chip).seconds

    def _local_work(self, node: Node, choices: StrategySet) -> _LocalWork:
        key = node.signature, choices
        if key not in self._work:
            self._work[key] = self._count_work(node, choices)
        return self._work[key]

    def _count_work(self, node: Node, choices: StrategySet) -> _LocalWork:
        rule = node.rule
        assert rule is not None
        cut_of = {s.axes: 0 for s in choices}  # reductions of results change no work
        cut_of = {axes: number for number, axes in enumerate(cut_of)}
        cuts = tuple(self._cut(rule, axes) for axes in cut_of)
        flops: list[float] = []
        in_matrix_s: list[float] = []
        for cut in cuts:
            # An op's own lowering is not the op on smaller shapes: its work is taken as
            # the device's share of the whole op.
            is_special = _splits_special(rule, cut)
            local = _local_op(node, self._cut(rule, ()) if is_special else cut)
            share = 1 / math.prod(cut.parts) if is_special else 1.0
            flops.append(share * vector_flops(local, work_of(local), self.chip))
            in_matrix_s.append(share * matrix_s(local, self.chip))
        numbers = np.array([cut_of[s.axes] for s in choices])
        return _LocalWork(cuts, np.array(flops), np.array(in_matrix_s), numbers)


def _splits_special(rule: FactorRule, cut: OpCut) -> bool:
    return any(cut.parts[f] > 1 for f in rule.special)


def _larger_bytes(op: Op, prices: OpPrices) -> float:
    sides = ([a for a in op.operands if isinstance(a, Value)], op.results)
    return max(sum(map(prices.layouts.sent_bytes, side)) for side in sides)


def _local_op(node: Node, cut: OpCut) -> Op:
    """The op of a node with the shapes that one device has under a partitioning."""
    op, rule = node.op, node.rule
    assert op is not None
    assert rule is not None
    if all(parts == 1 for parts in cut.parts):
        return op
    operands = _local_atoms(op.operands, rule.operands, cut)
    results = _local_atoms(op.results, rule.results, cut)
    params = op.params
    if rule.local_params is not None:
        shapes = tuple(o.shape for o in operands), tuple(r.shape for r in results)
        params = rule.local_params(op, *shapes)
    return replace(op, operands=operands, results=results, params=params)  # pyright: ignore[reportArgumentType]


def _local_atoms(
    atoms: Sequence[Atom], sides: Sequence[Dims], cut: OpCut
) -> tuple[Atom, ...]:
    """New values with the shapes that one device has; literals are unchanged.

    sides: factors of the dims of each atom.
    """
    return tuple(
        Value(local_shape(a.shape, dims, cut), a.dtype) if isinstance(a, Value) else a
        for a, dims in zip(atoms, sides, strict=True)
    )


def _accessed_values(op: Op, node: Node) -> Iterator[tuple[Value, Dims]]:
    """Each value that an op reads or writes, once, with the factors of its dims."""
    assert node.rule is not None
    sides = (op.operands, node.rule.operands), (op.results, node.rule.results)
    seen: set[Value] = set()
    for atoms, side in sides:
        for atom, dims in zip(atoms, side, strict=True):
            if isinstance(atom, Value) and atom not in seen:
                seen.add(atom)
                yield atom, dims
