"""Updates of state: how a step computes the next value of an array that it is given.

An optimizer adds something to a parameter, so that elementwise ops of one shape lead from
the parameter to its next value. What is added depends on a gradient, which JAX makes by
transposition (`Op.is_backward`).
"""

from collections.abc import Mapping
from functools import lru_cache

from meshwright.program.ir import Atom, Op, Program, Value
from meshwright.program.ops import Trait, has_trait

type Sources = Mapping[Value, tuple[Value, ...]]
"""For values, the values of equal shape that an elementwise op makes them from."""


@lru_cache(maxsize=1)  # several analyses of one program ask
def elementwise_sources(program: Program) -> Sources:
    """The `Sources` of a program and its bodies; values that have none are left out.

    An array that enters, runs through or leaves a loop or branch is made from the array
    on its other side. Ops of a backward pass are left out: they compute gradients.
    """
    sources: dict[Value, tuple[Value, ...]] = {}
    for op in program.walk():
        if op.bodies:
            _add_wires(op, sources)
        elif not op.is_backward and has_trait(op.kind, Trait.ELEMENTWISE):
            sources |= {r: _alike(op.operands, r) for r in op.results}
    return sources


def update_path(sources: Sources, output: Value) -> set[Value]:
    """The values from which elementwise ops of one shape lead to an output, and itself."""
    found, todo = {output}, [output]
    while todo:
        new = [v for v in sources.get(todo.pop(), ()) if v not in found]
        found.update(new)
        todo += new
    return found


@lru_cache(maxsize=1)
def gradient_values(program: Program) -> frozenset[Value]:
    """The values that depend on a gradient, in bodies too."""
    found: set[Value] = set()
    _add_gradients(program, found)
    return frozenset(found)


def _add_wires(op: Op, sources: dict[Value, tuple[Value, ...]]) -> None:
    for wire in op.wires:
        made = [op.bodies[b].outputs[i] for b, i in wire.outputs]
        if wire.operand is not None:
            made.append(op.operands[wire.operand])
        ends = [op.bodies[b].inputs[i] for b, i in wire.inputs]
        ends += [] if wire.result is None else [op.results[wire.result]]
        sources |= {end: _alike(made, end) for end in ends}


def _alike(atoms: tuple[Atom, ...] | list[Atom], value: Value) -> tuple[Value, ...]:
    arrays = (a for a in atoms if isinstance(a, Value))
    return tuple(a for a in arrays if a.shape == value.shape)


def _add_gradients(program: Program, found: set[Value]) -> None:
    for op in program.ops:
        for wire in op.wires:
            operand = None if wire.operand is None else op.operands[wire.operand]
            if operand in found:
                found.update(op.bodies[b].inputs[i] for b, i in wire.inputs)
        for body in op.bodies:
            _add_gradients(body, found)
        inner = {atom for body in op.bodies for atom in body.outputs}
        if (
            op.is_backward
            or not found.isdisjoint(a for a in op.operands if isinstance(a, Value))
            or not found.isdisjoint(a for a in inner if isinstance(a, Value))
        ):
            found.update(op.results)
