"""Multi-output fusion: several fusions that run as one kernel and write several results.

If one fusion reads what another of the same shape has just written, or if both read one
array, a compiler loops over the elements once and writes both results (XLA:
`MultiOutputFusion`). Examples are an optimizer's new moments and new weights, or an
array and its sums. This hardly changes which values are live, but fewer bytes move. So
time is counted over kernels, and memory over single fusions.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from meshwright.predict.compilers.model.compilation import Compilation
from meshwright.predict.compilers.model.dataflow import stored_outputs
from meshwright.predict.compilers.model.fusion import (
    FUSES_OPERANDS,
    Fusion,
    FusionKind,
    slices_read,
)
from meshwright.predict.compilers.model.kernels import (
    Access,
    Kernel,
    KernelSequence,
    accessed_values,
    collective_bytes,
    matrix_unit_operands,
    streamed_operands,
)
from meshwright.predict.compilers.model.tiled_layouts import Layouts
from meshwright.predict.compilers.xla.memory_space_assignment import on_chip_candidates
from meshwright.predict.roofline.kernel_time import timing_key
from meshwright.program.ir import Program, Value
from meshwright.program.ops import OpWork
from meshwright.program.rules.pallas_work import kernel_of
from meshwright.program.rules.registry import cost_of


def merge_into_kernels(compilation: Compilation) -> Compilation:
    """The compilation with its kernels: fusions merged by multi-output fusion."""
    program, layouts = compilation.program, compilation.layouts
    return replace(
        compilation, kernels=kernels_of(program, layouts, compilation.fusions)
    )


def kernels_of(
    program: Program,
    layouts: Layouts,
    fusions: Sequence[Fusion],
    joins_products: bool = True,
    is_merged: bool = True,
) -> KernelSequence:
    """The kernels of a program, and for ops with bodies the kernels of each body.

    joins_products: whether other fusions join the kernel of a product.
    is_merged: whether fusions share kernels at all.
    """
    merged = merge_fusions(fusions, joins_products) if is_merged else tuple(fusions)
    on_chip = on_chip_candidates(merged, stored_outputs(program), layouts)
    may_stay = {value for value, *_ in on_chip.ranges}
    kernels = tuple(
        [_kernel(f, layouts, may_stay, joins_products, is_merged) for f in merged]
    )
    axes = dict.fromkeys(axis for each in kernels for axis in each.axes)
    return KernelSequence(program.inputs, kernels, on_chip, tuple(axes))


def _kernel(
    fusion: Fusion,
    layouts: Layouts,
    may_stay: Collection[Value],
    joins_products: bool,
    is_merged: bool,
) -> Kernel:
    if fusion.kind is FusionKind.COLLECTIVE:
        return Kernel(fusion, (), collective_bytes(fusion, layouts), 0, None)
    if fusion.kind is FusionKind.REGION:
        bodies = tuple(
            kernels_of(body, layouts, inner, joins_products, is_merged)
            for body, inner in zip(fusion.root.bodies, fusion.bodies, strict=True)
        )
        return Kernel(fusion, (), 0, 0, None, bodies=bodies)
    work = timing_key(fusion.root), fusion.work.flops, fusion.work.transcendentals
    pallas = kernel_of(fusion.root)
    if pallas is not None:
        return Kernel(fusion, (), pallas.num_bytes, 0, work)
    cost = cost_of(fusion.root)
    if cost is not None and cost.num_bytes is not None:
        return Kernel(fusion, (), int(cost.num_bytes), 0, work)
    direct, shares = matrix_unit_operands(fusion), fusion.shares
    accesses: list[Access] = []
    num_bytes = elements = 0
    for value in accessed_values(fusion):
        accessed = math.prod(value.shape)
        if value in shares:
            accessed = int(accessed * shares[value])
        through_registers = 0 if value in direct else accessed
        moved = accessed * layouts.itemsize(value)
        if value in may_stay:
            accesses.append((value, accessed, through_registers, moved))
        num_bytes += moved
        elements += through_registers
    streams = streamed_operands(fusion, layouts)
    return Kernel(fusion, tuple(accesses), num_bytes, elements, work, streams)


def merge_fusions(
    fusions: Sequence[Fusion], joins_products: bool = True
) -> tuple[Fusion, ...]:
    """The fusions in a valid order, after those that can share a loop are merged.

    A fusion joins the last kernel of its shape that writes or reads one of its operands, if
    all its other operands are available before that kernel. No kernel has two products.
    Collectives that are launched together (XLA: `AllReduceCombiner`) are one kernel, which
    has the latency of one of them.
    """
    kernels: list[list[Fusion]] = []
    # The first kernel that can read a value: the one that writes its elements, or the
    # next one if the value is a reduction.
    readable_from: dict[Value, int] = {}
    # The last kernel over a value's own shape that reads or writes it.
    last_touch: dict[Value, int] = {}
    for fusion in fusions:
        extents = _loop_extents(fusion)
        if fusion.kind is FusionKind.PRODUCT and not joins_products:
            extents = None
        number = None
        # A product cannot fuse what its own kernel makes.
        if extents is not None and fusion.kind is not FusionKind.PRODUCT:
            number = _kernel_to_join(fusion, extents, readable_from, last_touch)
        if fusion.is_joined:
            number = len(kernels) - 1
        if number is None:
            number = len(kernels)
            kernels.append([fusion])
        else:
            kernels[number].append(fusion)
        readable = number + 1 if fusion.kind is FusionKind.REDUCTION else number
        for value in fusion.writes:
            readable_from[value] = readable
        if extents is not None:
            for value in (*fusion.reads, *fusion.writes):
                is_later = last_touch.get(value, -1) < number
                if is_later and _extents(value.shape) == extents:
                    last_touch[value] = number
    return tuple([_merged(each) if len(each) > 1 else each[0] for each in kernels])


def _kernel_to_join(
    fusion: Fusion,
    extents: tuple[int, ...],
    readable_from: Mapping[Value, int],
    last_touch: Mapping[Value, int],
) -> int | None:
    """The index of the kernel that a fusion can join; `None` if there is none.

    readable_from: for each value, the index of the first kernel that can read it.
    last_touch: for each value, the index of the last kernel that reads or writes it.
    """
    number = -1
    ready = 0
    for value in fusion.reads:
        if readable_from.get(value, 0) > ready:
            ready = readable_from[value]
        if last_touch.get(value, -1) > number and _extents(value.shape) == extents:
            number = last_touch[value]
    return number if number >= ready else None


def _merged(fusions: Sequence[Fusion]) -> Fusion:
    """One fusion in place of several; its root is their product, or else the first root."""
    products = (f for f in fusions if f.kind is FusionKind.PRODUCT)
    first = next(products, fusions[0])
    work = OpWork(
        sum([fusion.work.flops for fusion in fusions]),
        sum([fusion.work.transcendentals for fusion in fusions]),
    )
    writes = dict.fromkeys([v for f in fusions for v in f.writes])
    reads = dict.fromkeys([v for f in fusions for v in f.reads if v not in writes])
    slices = {v: each for v, each in slices_read(fusions).items() if v in reads}
    return Fusion(
        first.root, first.kind, tuple(reads), tuple(writes), work,
        merged=tuple(fusions), slices=slices, sides=first.sides,
    )  # fmt: skip


def _loop_extents(fusion: Fusion) -> tuple[int, ...] | None:
    """The extents of the loops of a fusion; `None` if it never shares a kernel."""
    if fusion.kind not in FUSES_OPERANDS or fusion.root.has_effect:
        return None
    if fusion.update is not None:
        return None
    if fusion.kind is FusionKind.REDUCTION:
        return _extents(fusion.root.operands[0].shape)
    return _extents(fusion.root.results[0].shape)


@lru_cache(maxsize=4096)
def _extents(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The extents of a shape without those that are 1."""
    return tuple(n for n in shape if n != 1)
