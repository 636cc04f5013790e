"""Programs with layout constraints on some of their values."""

from collections.abc import Mapping
from dataclasses import replace

from meshwright.program.ir import Atom, Op, Program, Value

LAYOUT_CONSTRAINT = "layout_constraint"
"""The kind of op that `run/local` executes as JAX's `with_layout_constraint`."""

type Layouts = Mapping[Value, tuple[int, ...]]
"""Layouts by value: the dims of each value, major to minor."""


def constrain(program: Program, layouts: Layouts) -> Program:
    """Insert a layout constraint for each value that has one; all readers then use it.

    The program computes the same. Its inputs and the types of its outputs do not
    change.
    """
    if not layouts:
        return program
    renamed: dict[Atom, Atom] = {}
    ops: list[Op] = []
    for value in (*program.inputs, *program.constants):
        _constrain(value, layouts, ops, renamed)
    for op in program.ops:
        operands = tuple(renamed.get(atom, atom) for atom in op.operands)
        bodies = tuple(constrain(body, layouts) for body in op.bodies)
        ops.append(replace(op, operands=operands, bodies=bodies))
        for value in op.results:
            _constrain(value, layouts, ops, renamed)
    outputs = tuple(renamed.get(atom, atom) for atom in program.outputs)
    return replace(program, ops=tuple(ops), outputs=outputs)


def _constrain(
    value: Value, layouts: Layouts, ops: list[Op], renamed: dict[Atom, Atom]
) -> None:
    """Append an op to `ops` that constrains a value's layout, if the value has one.

    renamed: the new value in place of each constrained value; an entry is added.
    """
    layout = layouts.get(value)
    if layout is not None:
        placed = Value(value.shape, value.dtype)
        params = {"major_to_minor": layout}
        ops.append(Op(LAYOUT_CONSTRAINT, (value,), (placed,), params))
        renamed[value] = placed
