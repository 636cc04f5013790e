"""Operations and bytes of Pallas kernels, counted and stored on the ops that call them.

A kernel is evaluated abstractly, at all steps of its grid at once, to find the branches
that run and the blocks that are fetched. A scalar is known at every step if it depends
only on the step's position in the grid and on integer tables that are constants of the
program. It is kept as an array with one dim per grid dim, of size 1 along each grid dim
that it does not depend on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from meshwright.jax_private import open_jaxpr, scan_counts
from meshwright.program.ir import Op, Program, Value, num_bytes
from meshwright.program.ops import OpWork, work_of
from meshwright.program.rules.pallas_work import (
    KERNEL_PARAM,
    KernelSection,
    PallasKernel,
)

Tables = Mapping[Value, Any]
"""Constant arrays, keyed by the program values that stand for them."""


def read_kernels(program: Program, outside: Tables | None = None) -> Program:
    """The program with a `PallasKernel` (its work) on each `pallas_call` of known grid.

    outside: constants that enter the program as inputs, from the program around it.
    """
    if not any(op.kind in ("pallas_call", "shard_map") for op in program.walk()):
        return program
    tables = {**(outside or {}), **program.constants}
    return replace(program, ops=tuple(_with_kernels(op, tables) for op in program.ops))


def _with_kernels(op: Op, tables: Tables) -> Op:
    if op.kind == "pallas_call":
        given = [
            tables.get(a) if isinstance(a, Value) else a.value for a in op.operands
        ]
        kernel = _read_kernel(op, [*map(_known, given)])
        params = {**op.params, KERNEL_PARAM: kernel}
        return op if kernel is None else replace(op, params=params)
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


def _read_kernel(op: Op, given: Sequence[Known]) -> PallasKernel | None:
    """The work of a `pallas_call`; `None` if its grid is known only at run time.

    The author's `cost_estimate`, if there is one, is used instead of counts.
    given: operands that are constants; a kernel may read from them which steps to skip.
    """
    mapping = op.params["grid_mapping"]
    if mapping.num_dynamic_grid_bounds:
        return None
    axes = [d for d in range(len(mapping.grid)) if d not in mapping.vmapped_dims]
    grid = _Grid(tuple(mapping.grid), axes)
    tables = given[: mapping.num_index_operands]
    inputs = op.params["jaxpr"].invars
    rest: list[Known] = [None] * (len(inputs) - len(tables))
    grid.run(op.params["jaxpr"], [*tables, *rest], grid.once)
    sections = tuple(grid.sections)
    stated = op.params.get("cost_estimate")
    if stated is not None:
        work = OpWork(stated.flops, stated.transcendentals)
        return PallasKernel(grid.steps, sections, stated.bytes_accessed, work)
    copied = sum(
        num_bytes(_value(block.transformed_block_aval))
        * grid.num_fetches(block.index_map_jaxpr, tables)
        for block in mapping.block_mappings
    )
    return PallasKernel(grid.steps, sections, copied)


type Known = np.ndarray | None
"""A scalar at every grid step, or a constant table; `None` if it depends on data."""

_SCALAR = (
    "abs", "add", "and", "clamp", "convert_element_type", "div", "eq", "ge", "gt", "le",
    "lt", "max", "min", "mul", "ne", "neg", "not", "or", "rem", "select_n", "sign", "sub",
    "xor",
)  # fmt: skip
"""Elementwise primitives with which kernels compute grid positions and indices."""


class _Grid:
    """The grid of a Pallas kernel, with an interpreter that runs all its steps at once.

    shape: the grid's shape, including the dims that `vmap` added.
    axes: the grid dims that the kernel's author wrote, in the author's order.
    sections: work of the branches and loop bodies that `run` has evaluated so far.
    once: how often unconditional code runs at each step: an array of ones.
    """

    def __init__(self, shape: tuple[int, ...], axes: Sequence[int]) -> None:
        self.shape = shape
        self.axes = axes
        self.sections: list[KernelSection] = []
        self.once = np.ones((1,) * len(shape), np.int64)

    @property
    def steps(self) -> int:
        """The number of grid steps."""
        return math.prod(self.shape)

    def place(self, dim: int) -> np.ndarray:
        """The index of each step along one dim of the grid."""
        sizes = [1] * len(self.shape)
        sizes[dim] = self.shape[dim]
        return np.arange(self.shape[dim], dtype=np.int32).reshape(sizes)

    def run(self, closed: Any, args: Sequence[Known], times: np.ndarray) -> list[Known]:
        """The known results of a jaxpr; times: how often it runs at each grid step."""
        jaxpr, consts = open_jaxpr(closed)
        names: dict[Any, Known] = dict(zip(jaxpr.invars, args, strict=True))
        names.update(zip(jaxpr.constvars, map(_known, consts), strict=False))
        runs = int(times.sum()) * self.steps // times.size
        section = KernelSection()
        for eqn in jaxpr.eqns:
            given = [_read(atom, names) for atom in eqn.invars]
            found = self._equation(eqn, given, times)
            names.update(zip(eqn.outvars, found, strict=True))
            section = _with(section, eqn, runs)
        if runs:
            self.sections.append(section)
        return [_read(atom, names) for atom in jaxpr.outvars]

    def _equation(
        self, eqn: Any, given: list[Known], times: np.ndarray
    ) -> Sequence[Known]:
        name, params = eqn.primitive.name, eqn.params
        unknown: list[Known] = [None] * len(eqn.outvars)
        if name == "program_id":
            return [self.place(self.axes[params["axis"]])]
        if name == "num_programs":
            return [np.asarray(self.shape[self.axes[params["axis"]]], np.int32)]
        if name == "get":
            return [_looked_up(params["tree"], given)]
        if name == "cond":
            self._branches(params["branches"], given, times)
        elif name == "scan":
            fixed, _ = scan_counts(params)
            args = [*given[:fixed], *[None] * (len(given) - fixed)]
            self.run(params["jaxpr"], args, times * params["length"])
        elif name in _SCALAR:
            return [_evaluated(eqn, given)]
        else:
            for body in _bodies(params):
                inputs = open_jaxpr(body)[0].invars
                same = len(inputs) == len(given)
                found = self.run(body, given if same else [None] * len(inputs), times)
                unknown = found if len(found) == len(unknown) else unknown
        return unknown

    def _branches(
        self, branches: Sequence[Any], given: list[Known], times: np.ndarray
    ) -> None:
        """Run each branch at steps that select it; if unknown, the costliest branch."""
        which, *args = given
        if which is not None:
            for index, branch in enumerate(branches):
                chosen = np.clip(which, 0, len(branches) - 1) == index
                self.run(branch, args, times * chosen)
            return
        before = self.sections
        found: list[list[KernelSection]] = []
        for branch in branches:
            self.sections = []
            self.run(branch, args, times)
            found.append(self.sections)
        self.sections = [
            *before,
            *max(found, key=lambda s: sum(each.work.flops for each in s)),
        ]

    def num_fetches(self, index_map: Any, tables: Sequence[Known]) -> int:
        """The number of grid steps that need another block than the step before."""
        places = [self.place(dim) for dim in range(len(self.shape))]
        kernel_sections, self.sections = self.sections, []
        where = self.run(index_map, [*places, *tables], self.once)
        self.sections = kernel_sections
        total = 1
        for dim, size in enumerate(self.shape):
            # Steps along this dim at which all dims inside it return to 0.
            moved = never = np.zeros((1,) * len(self.shape), bool)
            for index in where:
                if index is None:
                    return self.steps
                moved = moved | _differs(index.reshape(index.shape or never.shape), dim)
            steps = math.prod(self.shape[:dim]) * (size - 1)
            total += int(moved.sum()) * steps // max(1, moved.size)
        return total


def _differs(index: np.ndarray, dim: int) -> np.ndarray:
    """Whether a block index differs once `dim` advances and all dims inside are 0."""
    inside = index.ndim - dim - 1
    outside = (slice(None),) * dim
    goes_on = index.shape[dim] > 1
    before = index[
        (*outside, slice(None, -1 if goes_on else None), *[slice(-1, None)] * inside)
    ]
    after = index[(*outside, slice(1 if goes_on else 0, None), *[slice(0, 1)] * inside)]
    return before != after


def _known(const: Any) -> Known:
    unknown = const is None or isinstance(const, Tracer)
    return None if unknown else np.asarray(const)


def _read(atom: Any, names: dict[Any, Known]) -> Known:
    return np.asarray(atom.val) if hasattr(atom, "val") else names.get(atom)


def _looked_up(tree: Any, given: list[Known]) -> Known:
    """The elements of a table at known indices; `None` if any of them is unknown."""
    table, *indices = given
    if table is None or any(index is None for index in indices):
        return None
    found = jax.tree.unflatten(tree, indices)
    if len(found) != 1:
        return None
    places = found[0].indices
    if not all(isinstance(place, int | np.ndarray) for place in places):
        return None
    return table[tuple(places)]


def _evaluated(eqn: Any, given: list[Known]) -> Known:
    """A scalar computed from known scalars; `None` if any of them is unknown."""
    known = [number for number in given if number is not None]
    if eqn.outvars[0].aval.shape or len(known) < len(given):
        return None
    dtypes = [atom.aval.dtype for atom in eqn.invars]
    numbers = np.broadcast_arrays(*known)
    with jax.ensure_compile_time_eval():
        arrays = [
            jnp.asarray(n, dtype) for n, dtype in zip(numbers, dtypes, strict=True)
        ]
        return np.asarray(eqn.primitive.bind(*arrays, **eqn.params))


def _bodies(params: Any) -> list[Any]:
    return [value for value in params.values() if hasattr(value, "eqns")]


def _with(section: KernelSection, eqn: Any, runs: int) -> KernelSection:
    """The section's work plus that of one more equation, which runs `runs` times."""
    name = eqn.primitive.name
    if name in ("addupdate", "masked_swap", "swap"):
        stored = math.prod(eqn.invars[1].aval.shape)
        return replace(section, stored=section.stored + runs * stored)
    shapes = [getattr(a.aval, "shape", ()) for a in (*eqn.invars, *eqn.outvars)]
    if not any(shapes) or not eqn.outvars or _bodies(eqn.params):
        return section  # the scalar unit runs beside the others
    op = Op(
        name,
        tuple(_value(atom.aval) for atom in eqn.invars),
        tuple(_value(atom.aval) for atom in eqn.outvars),
        eqn.params,
    )
    if name == "dot_general":
        return replace(section, products=(*section.products, (op, runs)))
    return replace(section, rest=section.rest + work_of(op) * runs)


def _value(aval: Any) -> Value:
    return Value(tuple(getattr(aval, "shape", ())), str(getattr(aval, "dtype", "")))
