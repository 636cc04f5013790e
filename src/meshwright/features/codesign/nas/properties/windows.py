"""Positions that one dim of a moved or windowed operand gives to a dim of the result.

The factor rule of such an op says only that parts correspond; which positions do, its
parameters say. A region of a dim is a mask [n]: true at the positions in it.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshwright.program.ir import Op
from meshwright.program.ops.arithmetic.halo import Sliding, paddings_of

Mask = NDArray[np.bool_]
Region = tuple[Mask, ...]
"""A region of a value: the product of a mask [n] for each of its dims."""


def window_positions(dim: Sliding, wanted: Mask) -> Mask:
    """Positions of the input [size] in the windows of output positions `wanted` [out]."""
    starts = np.flatnonzero(wanted) * dim.stride - dim.padding[0]
    taps = np.arange(dim.window) * dim.dilation
    at = (starts[:, None] + taps).ravel()
    at = at[at % dim.base == 0] // dim.base
    found = np.zeros(dim.size, bool)
    found[at[(at >= 0) & (at < dim.size)]] = True
    return found


def convolved(op: Op, region: Region) -> dict[int, Region]:
    """Regions of input and kernel, where features are joined and space has windows."""
    numbers: Any = op.params["dimension_numbers"]
    (batch, feature, *space), kernel, (to_batch, to_feature, *to_space) = (
        numbers.lhs_spec,
        numbers.rhs_spec,
        numbers.out_spec,
    )
    lhs, rhs = (operand.shape for operand in op.operands)
    masks: dict[int, Mask] = {
        batch: _of_group(region[to_batch], lhs[batch], op.params["batch_group_count"]),
        feature: _of_group(
            region[to_feature], lhs[feature], op.params["feature_group_count"]
        ),
    }
    if op.params["batch_group_count"] > 1:
        masks[batch] = np.ones(lhs[batch], bool)
    for i, (at, to) in enumerate(zip(space, to_space, strict=True)):
        dim = Sliding(
            lhs[at],
            rhs[kernel[2 + i]],
            op.results[0].shape[to],
            op.params["window_strides"][i],
            paddings_of(op)[i],
            op.params["lhs_dilation"][i],
            op.params["rhs_dilation"][i],
        )
        masks[at] = window_positions(dim, region[to])
    weights = [np.ones(n, bool) for n in rhs]
    weights[kernel[0]] = region[to_feature]
    if op.params["feature_group_count"] == 1 and op.params["batch_group_count"] == 1:
        masks[feature], masks[batch] = np.ones(lhs[feature], bool), region[to_batch]
    return {0: tuple(masks[d] for d in range(len(lhs))), 1: tuple(weights)}


def _of_group(wanted: Mask, size: int, groups: int) -> Mask:
    """Positions [size] of the groups to which the wanted positions belong."""
    if groups == 1:
        return wanted
    return np.repeat(wanted.reshape(groups, -1).any(1), size // groups)


def pooled(op: Op, region: Region) -> dict[int, Region]:
    """The region of the operand whose windows are reduced."""
    params, shape = op.params, op.operands[0].shape
    paddings, base = paddings_of(op), params.get("base_dilation", (1,) * len(shape))
    spread: Any = params.get("window_dilation", (1,) * len(shape))
    sizes: Any = params["window_dimensions"]
    strides: Any = params["window_strides"]
    dims = [
        Sliding(
            n, sizes[d], len(region[d]), strides[d], paddings[d], base[d], spread[d]
        )  # pyright: ignore[reportIndexIssue, reportUnknownArgumentType]
        for d, n in enumerate(shape)
    ]
    found = tuple(map(window_positions, dims, region))
    return dict.fromkeys(range(len(op.results)), found)


def sliced(op: Op, region: Region) -> dict[int, Region]:
    """The region of the operand from which a slice is taken."""
    starts: Any = op.params["start_indices"]
    strides: Any = op.params["strides"] or (1,) * len(region)
    masks: list[Mask] = []
    for d, n in enumerate(op.operands[0].shape):
        mask = np.zeros(n, bool)
        mask[starts[d] + np.flatnonzero(region[d]) * strides[d]] = True
        masks.append(mask)
    return {0: tuple(masks)}


def padded(op: Op, region: Region) -> dict[int, Region]:
    """The regions of the operand and of the value that pads it."""
    config: Any = op.params["padding_config"]
    masks: list[Mask] = []
    for d, n in enumerate(op.operands[0].shape):
        low, _, interior = config[d]
        at = low + np.arange(n) * (interior + 1)
        inside = (at >= 0) & (at < len(region[d]))
        masks.append(inside & region[d][np.where(inside, at, 0)])
    return {0: tuple(masks), 1: ()}


def joined(op: Op, region: Region) -> dict[int, Region]:
    """The regions of the operands that lie side by side along one dim."""
    dim: Any = op.params["dimension"]
    found: dict[int, Region] = {}
    start = 0
    for i, operand in enumerate(op.operands):
        n = operand.shape[dim]
        found[i] = (*region[:dim], region[dim][start : start + n], *region[dim + 1 :])
        start += n
    return found


def reversed_(op: Op, region: Region) -> dict[int, Region]:
    """The region of an operand whose dims are reversed."""
    turned: Any = op.params["dimensions"]
    return {0: tuple(m[::-1] if d in turned else m for d, m in enumerate(region))}


def accumulated(op: Op, region: Region) -> dict[int, Region]:
    """The region of the operand of a cumulative sum, product or extremum."""
    dim: Any = op.params["axis"]
    wanted = np.flatnonzero(region[dim])
    mask = np.zeros(len(region[dim]), bool)
    if wanted.size:
        chosen = (
            slice(wanted[0], None) if op.params["reverse"] else slice(wanted[-1] + 1)
        )
        mask[chosen] = True
    return {0: (*region[:dim], mask, *region[dim + 1 :])}


POSITIONS: Mapping[str, Callable[[Op, Region], dict[int, Region]]] = {
    "conv_general_dilated": convolved,
    **dict.fromkeys(
        ("reduce_window_sum", "reduce_window_max", "reduce_window_min"), pooled
    ),
    "slice": sliced,
    "pad": padded,
    "concatenate": joined,
    "rev": reversed_,
    **dict.fromkeys(
        ("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"), accumulated
    ),
}
"""For ops that move positions: the region of each operand, from that of the result."""
