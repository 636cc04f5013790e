"""What the Pallas kernels of a program do, noted on the ops that call them."""

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
from meshwright.program.rules.pallas_kernel import PallasKernel, noted

Tables = Mapping[Value, Any]
"""Constants by the values that hold them."""


def note_kernels(program: Program, outside: Tables | None = None) -> Program:
    """The program whose calls of kernels say what these do.

    outside: constants that inputs of the program are.
    """
    if not any(op.kind in ("pallas_call", "shard_map") for op in program.walk()):
        return program
    tables = {**(outside or {}), **program.constants}
    return replace(program, ops=tuple(_note(op, tables) for op in program.ops))


def _note(op: Op, tables: Tables) -> Op:
    if op.kind == "pallas_call":
        kernel = read_kernel(op, [_known(atom, tables) for atom in op.operands])
        return op if kernel is None else noted(op, kernel)
    if op.kind == "shard_map":
        inner = op.params["jaxpr"]
        assert isinstance(inner, Program)
        given = {
            value: tables[atom]
            for value, atom in zip(inner.inputs, op.operands, strict=True)
            if isinstance(atom, Value) and atom in tables and atom.shape == value.shape
        }
        return replace(op, params={**op.params, "jaxpr": note_kernels(inner, given)})
    if not op.bodies:
        return op
    found: list[dict[Value, Any]] = [{} for _ in op.bodies]
    for wire in op.wires:
        atom = None if wire.operand is None else op.operands[wire.operand]
        if isinstance(atom, Value) and atom in tables and not wire.is_stacked:
            for body, position in wire.inputs if not wire.outputs else ():
                found[body][op.bodies[body].inputs[position]] = tables[atom]
    bodies = (
        note_kernels(body, given) for body, given in zip(op.bodies, found, strict=True)
    )
    return replace(op, bodies=tuple(bodies))


def _known(atom: Atom, tables: Tables) -> Known:
    const = tables.get(atom) if isinstance(atom, Value) else atom.value
    if const is None or isinstance(const, Tracer):
        return None
    return np.asarray(const)


def read_kernel(op: Op, given: Sequence[Known]) -> PallasKernel | None:
    """What a `pallas_call` does; None where its grid is not known before it runs.

    Its author's `cost_estimate` stands where there is one. given: operands that are
    known, of which a kernel may look up what to skip.
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
    stretches = tuple(grid.stretches)
    told = params.get("cost_estimate")
    if told is not None:
        work = OpWork(told.flops, told.transcendentals)
        return PallasKernel(grid.steps, stretches, told.bytes_accessed, work)
    num_bytes = sum(
        _block_bytes(block) * grid.moves(block.index_map_jaxpr, tables)
        for block in mapping.block_mappings
    )
    return PallasKernel(grid.steps, stretches, num_bytes)


def _block_bytes(block: Any) -> int:
    aval = block.transformed_block_aval
    return math.prod(aval.shape) * itemsize_bytes(str(aval.dtype))
