"""The network that trains in place of another on a CPU, with fast grouped convolutions."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from meshwright.features.codesign.nas.rewriting.network import ModelProgram, renamed
from meshwright.features.codesign.nas.rewriting.replace import copy_ops
from meshwright.features.codesign.nas.searching.cpu_convs import grouped_conv
from meshwright.program.capture import convert
from meshwright.program.ir import Atom, Op, Program


def cpu_network(network: ModelProgram) -> ModelProgram:
    """The network with `grouped_conv` in place of its grouped convolutions.

    Those with dilation, or with operands or results of several dtypes, stay.
    """
    old = network.program
    swapped: dict[Atom, Atom] = {}
    ops: list[Op] = []
    for op in old.ops:
        operands = renamed(swapped, op.operands)
        if not _is_plain_grouped(op):
            ops.append(replace(op, operands=operands))
            continue
        shaped = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in operands]
        body = convert(jax.make_jaxpr(partial(_permuted_conv, op.params))(*shaped))
        added, output = copy_ops(body, [*operands])
        ops += added
        swapped[op.results[0]] = output
    outputs = renamed(swapped, old.outputs)
    program = Program(old.inputs, tuple(ops), outputs, old.constants)
    return replace(network, program=program)


def _is_plain_grouped(op: Op) -> bool:
    """Whether an op is a grouped convolution, without dilation or another dtype."""
    if op.kind != "conv_general_dilated":
        return False
    params: Any = op.params
    x, kernel = op.operands
    dilations = {*params["lhs_dilation"], *params["rhs_dilation"]}
    return (
        params["feature_group_count"] > 1
        and params["batch_group_count"] == 1
        and dilations <= {1}
        and x.dtype == kernel.dtype == op.results[0].dtype
    )


def _permuted_conv(params: Any, x: Any, kernel: Any) -> Any:
    """`grouped_conv` with the dims where the op has them."""
    numbers = params["dimension_numbers"]
    batch, feature, *pixels = numbers.lhs_spec
    size, inside, *window = numbers.rhs_spec
    y = grouped_conv(
        jnp.transpose(x, (batch, *pixels, feature)),
        jnp.transpose(kernel, (*window, inside, size)),
        params["window_strides"],
        params["padding"],
        params["feature_group_count"],
    )
    batch, feature, *pixels = numbers.out_spec
    return jnp.transpose(y, np.argsort((batch, *pixels, feature)).tolist())
