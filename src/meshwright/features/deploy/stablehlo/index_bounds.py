"""Bounds of indices in StableHLO, for compilers that do not check them.

StableHLO clamps the indices of a gather, and skips the windows of a scatter that lie
outside of the array. IREE 3.13 does neither: code that it compiles reads and writes memory
outside of the array. LiteRT stops with an error at a gather. So these rules become ops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import Any

_NARROW = ("i8", "i16", "ui8", "ui16")
"""Types of indices that may not hold an index behind the end of an array."""


def clamp_gathers(module: Any) -> None:
    """Clamp the indices of each gather of a module, so that all are in the array.

    module: as `jax.jit(fn).lower(...).compiler_ir("stablehlo")` returns it; it is changed.
    """
    _change(module, "stablehlo.gather", _clamp_gather)


def redirect_scatters(module: Any) -> None:
    """Let scatters write what lies outside of an array into a margin, which is cut off.

    module: as for `clamp_gathers`.
    """
    _change(module, "stablehlo.scatter", _pad_scatter)


def _change(module: Any, kind: str, change_fn: Callable[[Any], None]) -> None:
    """Call a function for each op of a kind."""
    with module.context, _ir().Location.unknown():
        for op in list(_walk(module.operation)):
            if op.name == kind:
                change_fn(op)


def _ir() -> Any:
    return import_module("jax.extend.mlir.ir")


def _hlo() -> Any:
    return import_module("jax.extend.mlir.dialects.stablehlo")


def _walk(op: Any) -> Iterator[Any]:
    """All ops inside of an op's regions, at any depth."""
    for region in op.regions:
        for block in region.blocks:
            for inner in block.operations:
                yield inner.operation
                yield from _walk(inner.operation)


def _clamp_gather(op: Any) -> None:
    hlo = _hlo()
    numbers = hlo.GatherDimensionNumbers(op.attributes["dimension_numbers"])
    sizes = list(_ir().DenseI64ArrayAttr(op.attributes["slice_sizes"]))
    array, indices = op.operands
    limits = [array.type.shape[d] - sizes[d] for d in numbers.start_index_map]
    with _ir().InsertionPoint(op):
        low = _along(indices, [0] * len(limits), numbers.index_vector_dim)
        high = _along(indices, limits, numbers.index_vector_dim)
        op.operands[1] = hlo.clamp(low, indices, high)


def _pad_scatter(op: Any) -> None:
    """Give the array a margin behind its end, in which windows go that lie outside."""
    hlo, ir = _hlo(), _ir()
    numbers = hlo.ScatterDimensionNumbers(op.attributes["scatter_dimension_numbers"])
    count = len(op.operands) // 2
    arrays, indices = list(op.operands)[:count], op.operands[count]
    updates = list(op.operands)[count + 1 :]
    shape = list(arrays[0].type.shape)
    margins = _window(numbers, shape, updates[0].type.shape)
    indexed = list(numbers.scattered_dims_to_operand_dims)
    margins = [m if d in indexed else 0 for d, m in enumerate(margins)]
    with ir.InsertionPoint(op):
        moved = _redirected(
            indices,
            [shape[d] - margins[d] for d in indexed],
            [shape[d] for d in indexed],
            numbers.index_vector_dim,
        )
        wide = [_padded(array, margins) for array in arrays]
        attributes = {name: op.attributes[name] for name in op.attributes}
        # Redirected windows are neither in order nor at different places.
        for name in ("indices_are_sorted", "unique_indices"):
            attributes[name] = ir.BoolAttr.get(False)
        made = ir.Operation.create(
            "stablehlo.scatter",
            results=[x.type for x in wide],
            operands=[*wide, moved, *updates],
            attributes=attributes,
            regions=1,
        )
        op.regions[0].blocks[0].append_to(made.regions[0])
        rank = len(shape)
        for old, new in zip(op.results, made.results, strict=True):
            old.replace_all_uses_with(hlo.slice(new, [0] * rank, shape, [1] * rank))
    op.erase()


def _window(numbers: Any, shape: Sequence[int], updates: Sequence[int]) -> list[int]:
    """The extents of a scatter's window along each dim of the array."""
    missing = [*numbers.inserted_window_dims, *numbers.input_batching_dims]
    sizes = iter([updates[d] for d in numbers.update_window_dims])
    return [1 if d in missing else next(sizes) for d in range(len(shape))]


def _redirected(
    indices: Any, limits: Sequence[int], ends: Sequence[int], vector_dim: int
) -> Any:
    """The indices, replaced by the end of the array where not in [0, limit]."""
    hlo, ir = _hlo(), _ir()
    element = str(indices.type.element_type)
    if element in _NARROW:
        wide = ir.IntegerType.get_signless(32)
        shape = indices.type.shape
        indices = hlo.convert(ir.RankedTensorType.get(shape, wide), indices)
    kind = hlo.ComparisonTypeAttr.get("UNSIGNED" if element[0] == "u" else "SIGNED")

    def compared(how: str, numbers: Sequence[int]) -> Any:
        other = _along(indices, numbers, vector_dim)
        direction = hlo.ComparisonDirectionAttr.get(how)
        return hlo.compare(indices, other, direction, compare_type=kind)

    is_inside = hlo.and_(compared("GE", [0] * len(limits)), compared("LE", limits))
    return hlo.select(is_inside, indices, _along(indices, ends, vector_dim))


def _padded(array: Any, margins: Sequence[int]) -> Any:
    hlo, ir = _hlo(), _ir()
    element = array.type.element_type
    zero = hlo.constant(
        ir.Attribute.parse(f"dense<{_zero(element)}> : tensor<{element}>")
    )
    none = [0] * len(margins)
    return hlo.pad(array, zero, none, list(margins), none)


def _zero(element: Any) -> str:
    text = str(element)
    if text.startswith("complex"):
        return "(0.0, 0.0)"
    return "false" if text == "i1" else "0" if "i" in text else "0.0"


def _along(indices: Any, numbers: Sequence[int], vector_dim: int) -> Any:
    """Numbers for each component of the indices, in an array of the indices' type."""
    hlo, ir = _hlo(), _ir()
    element = indices.type.element_type
    largest = 2 ** (element.width - (not str(element).startswith("u"))) - 1
    given = [min(n, largest) for n in numbers]
    is_implicit = vector_dim == len(indices.type.shape)
    dims = [] if is_implicit else [vector_dim]
    text = f"dense<{given[0] if is_implicit else given}>"
    shape = "" if is_implicit else f"{len(given)}x"
    constant = hlo.constant(ir.Attribute.parse(f"{text} : tensor<{shape}{element}>"))
    return hlo.broadcast_in_dim(indices.type, constant, dims)
