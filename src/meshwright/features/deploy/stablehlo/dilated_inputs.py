"""Transposed convolutions for LiteRT: zeros between the elements of an input, written out.

XLA's convolution has an option `lhs_dilation`, which puts zeros between the elements of
its input; a transposed convolution is one with a dilation larger than 1.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from meshwright.machine import Mesh
from meshwright.program.ir import Literal, Op, Program
from meshwright.program.rules.builder import Builder


def pad_dilated_inputs(program: Program) -> Program:
    """The program whose convolutions have no dilated inputs that LiteRT lacks.

    An op `pad` puts the zeros between the elements, and those around them. LiteRT's
    converter has transposed convolutions of images only, and of one kind of padding; for
    others, such as a kernel of 3 with stride 2, its results are wrong.

    program: without nested programs, as `unroll_loops` returns it.
    """
    builder = Builder(Mesh({"device": 1}))
    changed: dict[Any, Any] = {}
    for op in program.ops:
        operands = tuple(changed.get(a, a) for a in op.operands)
        moved = replace(op, operands=operands)
        if op.kind != "conv_general_dilated" or _is_native(op):
            builder.ops.append(moved)
            continue
        builder.source = op.source
        changed[op.results[0]] = _padded(builder, moved)
    outputs = tuple(changed.get(a, a) for a in program.outputs)
    return replace(program, ops=tuple(builder.ops), outputs=outputs)


def _is_native(op: Op) -> bool:
    """Whether LiteRT's converter has a form for the convolution's input dilation."""
    params: Any = op.params
    if set(params["lhs_dilation"]) == {1} or not params["lhs_dilation"]:
        return True
    sizes = [op.operands[1].shape[d] for d in params["dimension_numbers"].rhs_spec[2:]]
    is_valid = all(
        tuple(pad) == (size - 1, size - 1)
        for pad, size in zip(params["padding"], sizes, strict=True)
    )
    return is_valid and len(sizes) <= 2 and params["feature_group_count"] == 1


def _padded(builder: Builder, op: Op) -> Any:
    """The result of the convolution, after an op that pads its input."""
    params: Any = op.params
    x = op.operands[0]
    shape, config = list(x.shape), [(0, 0, 0)] * len(x.shape)
    dims = params["dimension_numbers"].lhs_spec[2:]
    for dim, (low, high), dilation in zip(
        dims, params["padding"], params["lhs_dilation"], strict=True
    ):
        config[dim] = (low, high, dilation - 1)
        shape[dim] += low + high + (dilation - 1) * (shape[dim] - 1)
    zero = Literal(0, x.dtype)
    padded = builder.emit("pad", (x, zero), tuple(shape), x.dtype, config=tuple(config))
    plain = {
        **params,
        "lhs_dilation": (1,) * len(dims),
        "padding": ((0, 0),) * len(dims),
    }
    operands = (padded, *op.operands[1:])
    return builder.apply(op, operands, [op.results[0].shape], plain)[0]
