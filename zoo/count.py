"""Multiply-adds as papers count them, from the traced program itself."""

import math
from collections.abc import Callable
from typing import Any

from meshwright.program.capture import capture
from meshwright.program.ir import Op, Program


def macs(fn: Callable[..., Any], *args: Any) -> int:
    """Multiply-adds of the convolutions and matrix products of one `fn(*args)`.

    Convolutions count padded positions too, as the tables of vision papers do; loops
    are multiplied. Arguments may be shapes. Tracing `fn` on a batch of 1 gives the
    figure for one image.
    """
    return _macs(capture(fn, args).program)


def _macs(program: Program) -> int:
    total = 0
    for op in program.ops:
        total += _COUNT[op.kind](op) if op.kind in _COUNT else 0
        times = op.params["length"] if op.kind == "scan" else 1
        total += times * sum(_macs(body) for body in op.bodies)
    return total


def _product(op: Op) -> int:
    ((contracted, _), _) = op.params["dimension_numbers"]
    summed = math.prod(op.operands[0].shape[d] for d in contracted)
    return math.prod(op.results[0].shape) * summed


def _convolution(op: Op) -> int:
    """Each result element reads one kernel, less its dim of output features."""
    kernel = op.operands[1].shape
    features = op.params["dimension_numbers"].rhs_spec[0]
    return math.prod(op.results[0].shape) * math.prod(kernel) // kernel[features]


_COUNT: dict[str, Callable[[Op], int]] = {
    "conv_general_dilated": _convolution,
    "dot_general": _product,
}
