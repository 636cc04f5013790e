"""Narrow floating-point dtypes as float32, for runtimes that lack them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from meshwright.features.deploy.source.model import Port, SourceModel
from meshwright.program.ir import Atom, Literal, Op, Program, Value


def widen_model(model: SourceModel, dtypes: Collection[str]) -> SourceModel:
    """The model with arrays of some dtypes as float32, among inputs and outputs too."""
    values: dict[Atom, Value] = {}
    program = _widened(model.program, dtypes, values)

    def moved(value: Value) -> Value:
        return values.get(value, value)

    def wide(array: Any) -> Any:
        return array.astype(np.float32) if str(array.dtype) in dtypes else array

    return replace(
        model,
        program=program,
        weights={moved(v): wide(a) for v, a in model.weights.items()},
        names={moved(v): name for v, name in model.names.items()},
        outputs=tuple(
            Port(p.name, p.shape, "float32" if p.dtype in dtypes else p.dtype)
            for p in model.outputs
        ),
        samples=tuple(map(wide, model.samples)),
    )


def narrow_floats(program: Program) -> tuple[str, ...]:
    """Names of the floating-point dtypes narrower than float32 that a program has."""
    found = {v.dtype for v in program.inputs}
    for op in program.walk():
        found.update(a.dtype for a in (*op.operands, *op.results))
    return tuple(sorted(found & {"bfloat16", "float16"}))


def _widened(
    program: Program, dtypes: Collection[str], values: dict[Atom, Value]
) -> Program:
    """values: by value with a narrow dtype, the value with float32; extended."""

    def moved(atom: Atom) -> Any:
        if atom.dtype not in dtypes:
            return atom
        if isinstance(atom, Literal):
            return Literal(np.asarray(atom.value).astype(np.float32)[()], "float32")
        return values.setdefault(atom, Value(atom.shape, "float32"))

    ops = tuple(
        replace(
            op,
            operands=tuple(map(moved, op.operands)),
            results=tuple(map(moved, op.results)),
            params=_params(op, dtypes),
            bodies=tuple(_widened(body, dtypes, values) for body in op.bodies),
        )
        for op in program.ops
    )
    constants = {
        moved(v): np.asarray(c).astype(np.float32) if v.dtype in dtypes else c
        for v, c in program.constants.items()
    }
    return Program(
        tuple(map(moved, program.inputs)),
        ops,
        tuple(map(moved, program.outputs)),
        constants,
    )


def _params(op: Op, dtypes: Collection[str]) -> Mapping[str, Any]:
    """Parameters in which float32 takes the place of narrow dtypes."""

    def moved(value: Any) -> Any:
        is_narrow = isinstance(value, np.dtype) and value.name in dtypes
        return np.dtype(np.float32) if is_narrow else value

    return {name: moved(value) for name, value in op.params.items()}
