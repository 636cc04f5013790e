"""Output fusion: elementwise ops on the result of a product join the product's kernel.

On TPUs, so do updates of a slice in place with the result.
"""

import math
from collections.abc import Sequence

from meshwright.predict.compilers.model.dataflow import stored_outputs
from meshwright.predict.compilers.model.fusion import Fusion, FusionKind, slices_read
from meshwright.program.analysis.live_ranges import live_ranges
from meshwright.program.ir import Program, Value, num_bytes

_CONVOLUTION = "conv_general_dilated"


def fuse_outputs(
    fusions: Sequence[Fusion],
    program: Program,
    fuses_updates: bool = False,
    library_flops: float = math.inf,
) -> list[Fusion]:
    """The fusions, each product merged with the elementwise fusion that alone reads it.

    That fusion becomes the product's epilogue, and the product's own result is not written.

    fuses_updates: whether a product is also merged with the dynamic-update-slice that
        writes its result into an array in place.
    library_flops: most operations per element of what is merged with a convolution,
        whose library has an epilogue for a bias and a ReLU, but not for more.
    """
    kept = set(stored_outputs(program))
    ranges = live_ranges((fusion.reads, fusion.writes) for fusion in fusions)
    made_at, last_uses = ranges.definitions, ranges.last_uses
    found: list[Fusion | None] = list(fusions)
    for index, product in enumerate(fusions):
        if product.kind is not FusionKind.PRODUCT or len(product.writes) != 1:
            continue
        (value,) = product.writes
        reader = ranges.first_uses.get(value)
        if reader is None or reader != last_uses[value] or value in kept:
            continue
        end, size = found[reader], math.prod(value.shape)
        if end is None:
            continue
        is_update = fuses_updates and _is_update_of(end, value)
        is_like = all(math.prod(v.shape) == size for v in end.writes)
        if not (is_update or (end.kind is FusionKind.LOOP and is_like)):
            continue
        if product.root.kind == _CONVOLUTION and _exceeds(end, library_flops * size):
            continue
        others = [v for v in end.reads if v is not value]
        is_early = all(made_at.get(v, -1) < index for v in others)
        held = sum(
            num_bytes(v)
            for v in product.reads
            if v in made_at and last_uses[v] < reader
        )
        # A later epilogue would keep the operands alive, which may be more.
        if not is_early and held > num_bytes(value):
            continue
        found[index] = found[reader] = None
        found[index if is_early else reader] = _merged(product, end, others)
    return [fusion for fusion in found if fusion is not None]


def _exceeds(end: Fusion, flops: float) -> bool:
    """Whether a fusion does more operations than that; a transcendental is many."""
    return flops < math.inf and (end.work.transcendentals > 0 or end.work.flops > flops)


def _is_update_of(end: Fusion, value: Value) -> bool:
    """Whether a fusion writes a value, and nothing else, into a part of an array."""
    if end.root.kind != "dynamic_update_slice" or end.in_place in (None, value):
        return False
    return math.prod(end.root.operands[1].shape) == math.prod(value.shape)


def _merged(product: Fusion, end: Fusion, others: Sequence[Value]) -> Fusion:
    """The fusion of a product and its epilogue, which also reads the values `others`."""
    # An epilogue's operand like the result; of the product's own, one element of the
    # result needs many.
    like = [(v.shape, v.dtype) for v in end.writes]
    added = (v for v in others if v not in product.reads)
    in_place = next((v for v in added if [(v.shape, v.dtype)] == like), None)
    update = None
    if end.root.kind == "dynamic_update_slice":
        (update,) = product.writes
        in_place = end.in_place
    return Fusion(
        product.root,
        product.kind,
        tuple(dict.fromkeys((*product.reads, *others))),
        end.writes,
        product.work + end.work,
        in_place,
        overwrites=tuple(v for v in end.overwrites if v not in product.reads),
        slices=slices_read((product, end)),
        sides=product.sides,
        update=update,
    )
