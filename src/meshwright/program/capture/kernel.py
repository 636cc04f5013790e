"""Operations and bytes of a program's Pallas kernels, stored on the ops that call them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from jax.core import Tracer

from meshwright.program.capture.grid import Grid, Known
from meshwright.program.ir import Atom, Op, Program, Value, itemsize_bytes
from meshwright.program.ops import OpWork
from meshwright.program.rules.pallas_kernel import PallasKernel, with_kernel

Tables = Mapping[Value, Any]
"""Constant arrays by the values that hold them."""


def read_kernels(program: Program, outside: Tables | None = None) -> Program:
    """The program with a `PallasKernel` on each op that calls a kernel of known grid.

    outside: constants that are passed in as inputs of the program.
    """
    if not any(op.kind in ("pallas_call", "shard_map") for op in program.walk()):
        return program
    tables = {**(outside or {}), **program.constants}
    return replace(program, ops=tuple(_with_kernels(op, tables) for op in program.ops))


def _with_kernels(op: Op, tables: Tables) -> Op:
    if op.kind == "pallas_call":
        kernel = read_kernel(op, [_known(atom, tables) for atom in op.operands])
        return op if kernel is None else with_kernel(op, kernel)
    if op.kind == "shard_map":
        inner = op.params["jaxpr"]
        assert isinstance(inner, Program)
        given = {
            value: tables[atom]
            for value, atom in zip(inner.inputs, op.operands, strict=True)
            if isinstance(atom, Value) and atom in tables and atom.shape == value.shape
        }
        return replace(op, params={**op.params, "jaxpr": read_kernels(inner, given)})
    if not op.bodies:
        return op
    found: list[dict[Value, Any]] = [{} for _ in op.bodies]
    for wire in op.wires:
        atom = None if wire.operand is None else op.operands[wire.operand]
        if isinstance(atom, Value) and atom in tables and not wire.is_stacked:
            for body, position in wire.inputs if not wire.outputs else ():
                found[body][op.bodies[body].inputs[position]] = tables[atom]
    bodies = (
        read_kernels(body, given) for body, given in zip(op.bodies, found, strict=True)
    )
    return replace(op, bodies=tuple(bodies))


def _known(atom: Atom, tables: Tables) -> Known:
    const = tables.get(atom) if isinstance(atom, Value) else atom.value
    if const is None or isinstance(const, Tracer):
        return None
    return np.asarray(const)


def read_kernel(op: Op, given: Sequence[Known]) -> PallasKernel | None:
    """The kernel of a `pallas_call`; `None` if its grid is known only at run time.

    The author's `cost_estimate`, if there is one, is taken instead of counts.
    given: operands that are constants; a kernel may look up in them which steps to skip.
    """
    params: Any = op.params
    mapping = params["grid_mapping"]
    if mapping.num_dynamic_grid_bounds:
        return None
    outer = set(mapping.vmapped_dims)
    axes = [dim for dim in range(len(mapping.grid)) if dim not in outer]
    grid = Grid(tuple(mapping.grid), axes)
    tables = given[: mapping.num_index_operands]
    inputs = params["jaxpr"].invars
    rest: list[Known] = [None] * (len(inputs) - len(tables))
    grid.run(params["jaxpr"], [*tables, *rest], grid.every_step())
    sections = tuple(grid.sections)
    stated = params.get("cost_estimate")
    if stated is not None:
        work = OpWork(stated.flops, stated.transcendentals)
        return PallasKernel(grid.steps, sections, stated.bytes_accessed, work)
    num_bytes = sum(
        _block_bytes(block) * grid.num_fetches(block.index_map_jaxpr, tables)
        for block in mapping.block_mappings
    )
    return PallasKernel(grid.steps, sections, num_bytes)


def _block_bytes(block: Any) -> int:
    aval = block.transformed_block_aval
    return math.prod(aval.shape) * itemsize_bytes(str(aval.dtype))
