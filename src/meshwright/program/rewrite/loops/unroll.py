"""Unrolling of scans into their iterations (XLA: `WhileLoopUnroller`).

A loop over layers is one op. If it is unrolled, its iterations can be in different
stages of a pipeline. If one loop stacks an array and another reads it element by
element, as for residuals, the elements are read directly, without the stacked array.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from meshwright.machine import Mesh
from meshwright.program.ir import Atom, Op, Program, Value, Wire, num_bytes
from meshwright.program.ops import Builder
from meshwright.program.rewrite.dead_code import eliminate_dead_code
from meshwright.program.rewrite.recomputation import copied

type Between = Callable[[int, Atom], Op | None]
"""A function that returns an identity op to write between two iterations, or `None`.

Its arguments are an iteration and a value that the iteration receives from the one
before.
"""


def unroll_scans(program: Program, scans: Mapping[Op, Between]) -> Program:
    """The program with some of its scans unrolled.

    scans: the scans to unroll, ops of the program itself and not of bodies; and for
        each a function that gives ops to write between its iterations.
    The new ops are device ops, without JAX primitives. Law: the result computes the
    same.
    """
    if not scans:
        return program
    unrolling = _Unrolling(program)
    for op in program.ops:
        if op in scans:
            unrolling.unroll(op, scans[op])
        else:
            unrolling.keep(op)
    return eliminate_dead_code(unrolling.program())


class _Unrolling:
    """A program that is being rewritten with some of its scans unrolled.

    known: for values of the source program, the new value or atom that replaces each.
    elements: for a stacked array, its elements by iteration.
    """

    def __init__(self, source: Program) -> None:
        self.source = source
        self.builder = Builder(Mesh({"all": 1}))
        self.known: dict[Atom, Atom] = {}
        self.elements: dict[Atom, list[Atom]] = {}
        self.constants = dict(source.constants)

    def program(self) -> Program:
        """The new program so far, with the outputs of the source program."""
        outputs = tuple(self.known.get(a, a) for a in self.source.outputs)
        return replace(
            self.source,
            ops=tuple(self.builder.ops),
            outputs=outputs,
            constants=self.constants,
        )

    def keep(self, op: Op) -> None:
        """Write an op of the source program as it is."""
        operands = tuple(self.known.get(a, a) for a in op.operands)
        self.builder.ops.append(replace(op, operands=operands))

    def unroll(self, op: Op, between: Between) -> None:
        """Write the ops of all iterations of a scan."""
        self.builder.source = op.source
        length = op.params["length"]
        order = range(length)
        carried = {
            wire: self._operand(op, wire)
            for wire in op.wires
            if wire.inputs and wire.outputs
        }
        stacks: dict[Wire, dict[int, Atom]] = {
            wire: {} for wire in op.wires if not wire.inputs and wire.outputs
        }
        for i in reversed(order) if op.params["reverse"] else order:
            carried = self._marked(carried, i, between)
            outputs = self._iteration(op, carried, i)
            carried = {wire: outputs[wire.outputs[0][1]] for wire in carried}
            for wire, elements in stacks.items():
                elements[i] = outputs[wire.outputs[0][1]]
        for wire, atom in carried.items():
            if wire.result is not None:
                self.known[op.results[wire.result]] = atom
        for wire, elements in stacks.items():
            if wire.result is not None:
                self._stack(op.results[wire.result], [elements[i] for i in order])

    def _marked(
        self, carried: dict[Wire, Atom], i: int, between: Between
    ) -> dict[Wire, Atom]:
        """The carried values of an iteration, the largest behind the op of `between`.

        If `between` returns `None`, the carried values are unchanged.
        """
        wire = max(carried, key=lambda each: num_bytes(carried[each]), default=None)
        made = None if wire is None else between(i, carried[wire])
        if wire is None or made is None:
            return carried
        self.builder.ops.append(made)
        return {**carried, wire: made.results[0]}

    def _operand(self, op: Op, wire: Wire) -> Atom:
        assert wire.operand is not None
        atom = op.operands[wire.operand]
        return self.known.get(atom, atom)

    def _iteration(self, op: Op, carried: dict[Wire, Atom], i: int) -> tuple[Atom, ...]:
        """Write the ops of iteration `i`, and return the outputs of the body."""
        body = copied(op.bodies[0])
        self.constants.update(body.constants)
        mine: dict[Atom, Atom] = {}
        for wire in op.wires:
            if not wire.inputs:
                continue
            if wire in carried:
                atom = carried[wire]
            elif wire.is_stacked:
                atom = self._element(self._operand(op, wire), i)
            else:
                atom = self._operand(op, wire)
            mine[body.inputs[wire.inputs[0][1]]] = atom
        for inner in body.ops:
            operands = tuple(mine.get(a, a) for a in inner.operands)
            self.builder.ops.append(replace(inner, operands=operands))
        return tuple(mine.get(a, a) for a in body.outputs)

    def _element(self, stack: Atom, i: int) -> Atom:
        """Element `i` of a stacked array along its leading dim."""
        elements = self.elements.setdefault(stack, [])
        if not elements:
            for k in range(stack.shape[0]):
                row = self.builder.slice(stack, 0, k, k + 1)
                elements.append(self.builder.reshape(row, stack.shape[1:]))
        return elements[i]

    def _stack(self, result: Value, elements: list[Atom]) -> None:
        """Write the op that stacks elements.

        It is dead if only unrolled scans read it.
        """
        self.elements[result] = elements
        rows = [self.builder.reshape(a, (1, *a.shape)) for a in elements]
        self.builder.concatenate(rows, 0)
        self.builder.ops[-1] = replace(self.builder.ops[-1], results=(result,))
