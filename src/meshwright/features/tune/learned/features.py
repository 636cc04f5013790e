"""The features of TpuGraphs: 140 per HLO instruction, 24 per tiling, 18 per layout.

Their order, padding and sums are those of `featurizers.h` in
google-research-datasets/tpu_graphs (commit ddd187c); docs/learned.md lists the columns.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

NUM_NODE_FEATURES = 140
NUM_TILE_FEATURES = 24
NUM_LAYOUT_FEATURES = 18
MAX_RANK = 6
"""Dims of a shape, a layout or a tiling that features keep; later ones are cut off."""

NO_DIM = -1
"""Padding of layouts. A layout of nothing else is the compiler's default."""

DIM_COLUMNS = slice(21, 27)
ELEMENTS_COLUMN = 28
LAYOUT_COLUMNS = slice(134, 140)

_ELEMENT_TYPES = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 16, 15, 18, 13, 14, 17)
"""XLA's `PrimitiveType` of columns 2 to 20: invalid, pred, s8 ... s64, u8 ... u64, f16,
f32, f64, bf16, c64, c128, tuple, opaque, token. Newer types have no column."""


def node_features(instruction: Any, is_root: bool) -> list[float]:
    """The 140 features of a decoded `Instruction`; missing list entries are 0."""
    shape, window = instruction.shape, instruction.window.dimensions
    slices, paddings = instruction.slice_dimensions, instruction.padding_config
    return [
        is_root,
        0,  # element size in bits, which XLA no longer has
        *(shape.element_type == number for number in _ELEMENT_TYPES),
        *_summed(shape.dimensions, MAX_RANK),
        len(shape.tuple_shapes),
        instruction.parameter_number,
        *_padded(instruction.dimensions, MAX_RANK),
        *_window_features(window),
        *_convolution_features(instruction.convolution_dimension_numbers),
        instruction.feature_group_count,
        instruction.batch_group_count,
        *_summed((s.start for s in slices), 2),
        *_summed((s.stride for s in slices), 2),
        *_summed((s.limit for s in slices), 2),
        *_summed(instruction.dynamic_slice_sizes, 2),
        *_summed((p.edge_padding_low for p in paddings.dimensions), 2),
        *_summed((p.edge_padding_high for p in paddings.dimensions), 2),
        instruction.is_stable,
        *_padded(shape.layout.minor_to_major, MAX_RANK),
    ]


def _window_features(dims: Sequence[Any]) -> Iterator[float]:
    """The 56 features of a window: sizes, strides, padding and dilation, and reversals."""
    paddings = "padding_low", "padding_high"
    dilations = "window_dilation", "base_dilation"
    for name in ("size", "stride", *paddings, *dilations):
        yield from _summed((getattr(dim, name) for dim in dims), MAX_RANK)
    reversals = [bool(dim.window_reversal) for dim in dims]
    yield from _padded(reversals, MAX_RANK)
    yield sum(reversals)
    yield len(reversals) - sum(reversals)


def _convolution_features(numbers: Any) -> Iterator[float]:
    """The 14 features of a convolution's dimension numbers."""
    yield numbers.input_batch_dimension
    yield numbers.input_feature_dimension
    yield from _padded(numbers.input_spatial_dimensions, 4)
    yield numbers.kernel_input_feature_dimension
    yield numbers.kernel_output_feature_dimension
    yield from _padded(numbers.kernel_spatial_dimensions, 4)
    yield numbers.output_batch_dimension
    yield numbers.output_feature_dimension


def tile_features(
    kernel: Sequence[int], output: Sequence[int], input_: Sequence[int]
) -> NDArray[np.float32]:
    """The features of a tiling [24]: 8 each for kernel, output and input bounds.

    The 8 numbers are six bounds, their sum and their product; the product of no bounds
    is 0. Kernel bounds are a convolution's window. Data sets of other compilers say in
    `Provenance.columns` what the three kinds of bounds mean there.
    """
    parts = (_summed(bounds, MAX_RANK, 0) for bounds in (kernel, output, input_))
    return np.array([x for part in parts for x in part], np.float32)


def layout_features(layouts: Sequence[Sequence[int]]) -> NDArray[np.float32]:
    """The features of a node's layouts [18]: output, first input, second input.

    layouts: dims from minor to major, for at most three tensors. An empty or missing one
    is the compiler's default: six times -1.
    """
    row = np.full((3, MAX_RANK), NO_DIM, np.float32)
    for tensor, dims in enumerate(layouts):
        row[tensor, : len(dims)] = dims[:MAX_RANK]
    return row.reshape(-1)


def mark_missing_dims(node_feat: NDArray[np.float32]) -> NDArray[np.float32]:
    """Node features [n, 140] whose layouts are padded with -1 instead of 0.

    TpuGraphs pads the layouts in columns 134 to 139 with 0, which is also the number of a
    dim. The rank, which tells them apart, follows from the sizes in columns 21 to 26.
    """
    sizes = node_feat[:, DIM_COLUMNS]
    positions = np.arange(MAX_RANK)
    ranks = np.max(np.where(sizes != 0, positions + 1, 0), axis=1)
    marked = node_feat.copy()
    marked[:, LAYOUT_COLUMNS][positions >= ranks[:, None]] = NO_DIM
    return marked


def _padded(numbers: Iterable[float], length: int) -> list[float]:
    """The first `length` numbers; zeros follow if there are fewer."""
    kept = list(numbers)[:length]
    return kept + [0] * (length - len(kept))


def _summed(numbers: Iterable[int], length: int, of_none: int = 1) -> list[float]:
    """The first `length` numbers, then the sum and the product of all.

    of_none: the product if there are no numbers.
    """
    kept = list(numbers)
    return [*_padded(kept, length), sum(kept), math.prod(kept) if kept else of_none]
