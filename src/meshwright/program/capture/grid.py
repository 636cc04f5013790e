"""The steps of a Pallas kernel's grid, all at once: which branches run, which blocks move.

Scalars that follow from a step's place in the grid, and from tables of integers that
the program holds as constants, are known at every step. They are kept as arrays with
one dim for each of the grid, of size 1 where they do not depend on it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from meshwright.jax_private import open_jaxpr, scan_counts
from meshwright.program.ir import Op, Value
from meshwright.program.ops import OpWork, work_of
from meshwright.program.rules.pallas_kernel import Stretch

type Known = np.ndarray | None
"""A scalar at every step, or a table; None for what the data decide."""

_SCALAR = frozenset(
    {
        "abs", "add", "and", "clamp", "convert_element_type", "div", "eq", "ge", "gt",
        "le", "lt", "max", "min", "mul", "ne", "neg", "not", "or", "rem", "select_n",
        "sign", "sub", "xor",
    }
)  # fmt: skip
"""Primitives that kernels reckon places with, and that are elementwise."""

_STORES = frozenset({"addupdate", "masked_swap", "swap"})
_PRODUCTS = frozenset({"dot_general"})


class Grid:
    """A kernel's steps, in the order in which they run.

    shape: of the grid. axes: its dims as the kernel numbers them.
    stretches: what `run` has met.
    """

    def __init__(self, shape: tuple[int, ...], axes: Sequence[int]) -> None:
        self.shape = shape
        self.axes = axes
        self.stretches: list[Stretch] = []

    @property
    def steps(self) -> int:
        """How many there are."""
        return math.prod(self.shape)

    def place(self, dim: int) -> np.ndarray:
        """Where each step stands along a dim of the grid."""
        sizes = [1] * len(self.shape)
        sizes[dim] = self.shape[dim]
        return np.arange(self.shape[dim], dtype=np.int32).reshape(sizes)

    def every_step(self) -> np.ndarray:
        """One execution a step."""
        return np.ones((1,) * len(self.shape), np.int64)

    def run(self, closed: Any, args: Sequence[Known], times: np.ndarray) -> list[Known]:
        """What a jaxpr makes of `args`; its ops run `times` at each step."""
        jaxpr, consts = open_jaxpr(closed)
        names: dict[Any, Known] = dict(zip(jaxpr.invars, args, strict=True))
        names.update(zip(jaxpr.constvars, map(_table, consts), strict=False))
        runs = int(times.sum()) * self.steps // times.size
        stretch = Stretch()
        for eqn in jaxpr.eqns:
            given = [_read(atom, names) for atom in eqn.invars]
            found = self._equation(eqn, given, times)
            names.update(zip(eqn.outvars, found, strict=True))
            stretch = _with(stretch, eqn, runs)
        if runs:
            self.stretches.append(stretch)
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
            return [_reckoned(eqn, given)]
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
        """Each branch where the index says so, or the longest everywhere."""
        which, *args = given
        if which is not None:
            for index, branch in enumerate(branches):
                chosen = np.clip(which, 0, len(branches) - 1) == index
                self.run(branch, args, times * chosen)
            return
        met = self.stretches
        found: list[list[Stretch]] = []
        for branch in branches:
            self.stretches = []
            self.run(branch, args, times)
            found.append(self.stretches)
        self.stretches = [*met, *max(found, key=_flops)]

    def moves(self, index_map: Any, tables: Sequence[Known]) -> int:
        """Steps at which a block's place is not that of the step before."""
        places = [self.place(dim) for dim in range(len(self.shape))]
        met, self.stretches = self.stretches, []
        where = self.run(index_map, [*places, *tables], self.every_step())
        self.stretches = met
        total = 1
        for dim, size in enumerate(self.shape):
            # Steps on which this dim is the innermost that does not start again.
            moved = never = np.zeros((1,) * len(self.shape), bool)
            for index in where:
                if index is None:
                    return self.steps
                moved = moved | _differs(index.reshape(index.shape or never.shape), dim)
            steps = math.prod(self.shape[:dim]) * (size - 1)
            total += int(moved.sum()) * steps // max(1, moved.size)
        return total


def _differs(index: np.ndarray, dim: int) -> np.ndarray:
    """Whether a number changes where dim `dim` goes on and those inside start again."""
    inside = index.ndim - dim - 1
    outside = (slice(None),) * dim
    goes_on = index.shape[dim] > 1
    before = index[
        (*outside, slice(None, -1 if goes_on else None), *[slice(-1, None)] * inside)
    ]
    after = index[(*outside, slice(1 if goes_on else 0, None), *[slice(0, 1)] * inside)]
    return before != after


def _flops(stretches: Sequence[Stretch]) -> int:
    return sum(stretch.work.flops for stretch in stretches)


def _table(const: Any) -> Known:
    return None if isinstance(const, Tracer) else np.asarray(const)


def _read(atom: Any, names: dict[Any, Known]) -> Known:
    return np.asarray(atom.val) if hasattr(atom, "val") else names.get(atom)


def _looked_up(tree: Any, given: list[Known]) -> Known:
    """An element of a table, by indices that are known."""
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


def _reckoned(eqn: Any, given: list[Known]) -> Known:
    """A scalar of scalars that are known."""
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


def _with(stretch: Stretch, eqn: Any, runs: int) -> Stretch:
    """The stretch with one more op that runs so often."""
    name = eqn.primitive.name
    if name in _STORES:
        stored = math.prod(eqn.invars[1].aval.shape)
        return Stretch(stretch.products, stretch.rest, stretch.stored + runs * stored)
    shapes = [a.aval.shape for a in (*eqn.invars, *eqn.outvars) if _is_array(a.aval)]
    if not any(shapes) or not eqn.outvars or _bodies(eqn.params):
        return stretch  # scalars have a unit of their own
    op = Op(
        name,
        tuple(_value(atom.aval) for atom in eqn.invars),
        tuple(_value(atom.aval) for atom in eqn.outvars),
        eqn.params,
    )
    if name in _PRODUCTS:
        return Stretch((*stretch.products, (op, runs)), stretch.rest, stretch.stored)
    work: OpWork = work_of(op) * runs
    return Stretch(stretch.products, stretch.rest + work, stretch.stored)


def _is_array(aval: Any) -> bool:
    return hasattr(aval, "shape") and hasattr(aval, "dtype")


def _value(aval: Any) -> Value:
    return Value(tuple(getattr(aval, "shape", ())), str(getattr(aval, "dtype", "")))
