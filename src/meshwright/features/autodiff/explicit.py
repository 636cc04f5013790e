"""Insertion and removal of `dup`, `drop` and `zero`, the explicit uses of values.

The transformations write programs in which a linear value may be used any number of
times. `make_explicit` finds out which values are linear, and inserts `dup`, `drop` and
`zero`. It also turns a linear constant of a loop into a carry that each iteration
duplicates. `make_implicit` removes `dup` and `drop`. `erase` also replaces the other
ops of the linear language by ordinary ones, so that the program can be run, partitioned
or priced.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from meshwright.errors import AutodiffError
from meshwright.features.autodiff.op_rules import apply_rule, zeros_op
from meshwright.features.autodiff.region_links import (
    Link,
    fresh,
    is_condition,
    links_of,
    region_op,
)
from meshwright.features.autodiff.typing import (
    CUSTOM_REVERSE,
    DROP,
    DUP,
    REVERSE_ONLY,
    ZERO,
    LinearProgram,
    is_linear_in,
    is_zero,
    linear_sets,
    positions_in,
)
from meshwright.program.ir import Atom, Op, Program, Value
from meshwright.program.ops import Trait, has_trait
from meshwright.program.rewrite.dead_code import eliminate_dead_code


def make_explicit(program: Program, linear_inputs: Collection[Value]) -> LinearProgram:
    """The program as a linear program in the inputs `linear_inputs`.

    program: may use a linear value any number of times.
    """
    program = eliminate_dead_code(make_implicit(program))
    linear = set(linear_inputs)
    _mark(program.ops, linear)
    return LinearProgram(_Writer(linear).program(program), frozenset(linear))


def _mark(ops: Sequence[Op], linear: set[Value]) -> None:
    """Add to `linear` each result that depends on a linear value, also in bodies."""
    for op in ops:
        if op.kind == ZERO:
            linear.update(op.results)
        elif op.bodies:
            _mark_region(op, linear)
        elif not linear.isdisjoint(_values(op.operands)):
            linear.update(op.results)


def _mark_region(op: Op, linear: set[Value]) -> None:
    links = links_of(op)
    count = -1
    while count != len(linear):
        count = len(linear)
        for link in links:
            ends = (link.operand, *link.inputs.values(), *link.outputs.values())
            if any(end in linear for end in ends):
                inputs = link.inputs.items()
                linear.update(v for b, v in inputs if not is_condition(op, b))
                linear.update([] if link.result is None else [link.result])
        for body in op.bodies:
            _mark(body.ops, linear)
    for link in links:
        if link.result in linear:
            linear.update(_values(link.outputs.values()))


def _values(atoms: Any) -> list[Value]:
    return [atom for atom in atoms if isinstance(atom, Value)]


class _Writer:
    """Inserts `dup`, `drop` and `zero`; adds the values they make to `linear`."""

    def __init__(self, linear: set[Value]) -> None:
        self.linear = linear

    def program(self, program: Program) -> Program:
        """The program with `dup`, `drop` and `zero` inserted, also in its bodies."""
        zeros = _constant_zeros(program)
        ops: list[Op] = []
        for op in program.ops:
            if op.bodies:
                op = self._region(op, zeros, ops)
            else:
                op = self._completed(op, zeros, ops)
            ops.append(op)
        outputs = [self._output(a, zeros, ops) for a in program.outputs]
        live = _live(ops, outputs)
        return self._with_uses(replace(program, ops=live, outputs=tuple(outputs)))

    def _output(self, atom: Atom, zeros: Collection[Atom], ops: list[Op]) -> Atom:
        """The output's atom: a new `zero` if it must be linear but is constantly 0."""
        is_constant = atom in self.linear and atom in zeros
        return self._zero(atom, ops, None) if is_constant else atom

    def _completed(self, op: Op, zeros: Collection[Atom], ops: list[Op]) -> Op:
        """The op, with `zero` for constant zeros among operands that must be linear.

        An addition of a linear value and a constant zero, for example, is linear only
        if both operands are linear.
        """
        found = positions_in(op.operands, self.linear)
        if not found or is_linear_in(op, found):
            return op
        for wanted in linear_sets(op):
            rest = wanted.difference(found)
            if wanted.issuperset(found) and all(
                op.operands[i] in zeros or is_zero(op.operands[i]) for i in rest
            ):
                operands = [
                    self._zero(a, ops, op) if i in rest and isinstance(a, Value) else a
                    for i, a in enumerate(op.operands)
                ]
                return replace(op, operands=tuple(operands))
        return op

    def _zero(self, like: Atom, ops: list[Op], op: Op | None) -> Value:
        value = fresh(like)
        self.linear.add(value)
        ops.append(Op(ZERO, (), (value,), source="" if op is None else op.source))
        return value

    def _region(self, op: Op, zeros: Collection[Atom], ops: list[Op]) -> Op:
        links: list[Link] = []
        for link in links_of(op):
            is_linear = link.result in self.linear or any(
                v in self.linear for v in link.inputs.values()
            )
            if is_linear and link.operand in zeros and link.operand not in self.linear:
                assert link.operand is not None
                link = replace(link, operand=self._zero(link.operand, ops, op))
            if is_linear and has_trait(op.kind, Trait.LOOP):
                link = self._carried(link)
            links.append(link)
        inner = region_op(op, links, op.bodies)
        return replace(inner, bodies=tuple(map(self.program, inner.bodies)))

    def _carried(self, link: Link) -> Link:
        """The link as a carry of the loop, if it is a constant of all iterations."""
        if link.outputs or link.is_stacked or link.operand is None:
            return link
        ((body, value),) = link.inputs.items()
        result = fresh(value)
        self.linear.add(result)
        return replace(link, outputs={body: value}, result=result)

    def _with_uses(self, program: Program) -> Program:
        """Insert `dup` behind values used repeatedly and `drop` behind unused ones."""
        uses = Counter(a for op in program.ops for a in op.operands)
        uses.update(program.outputs)
        waiting: dict[Atom, list[Value]] = {}
        ops: list[Op] = []

        def define(values: Sequence[Value], source: object) -> None:
            for value in values:
                if value in self.linear and uses[value] != 1:
                    added, waiting[value] = self._copies(value, uses[value], source)
                    ops.extend(added)

        def use(atom: Atom) -> Atom:
            return waiting[atom].pop(0) if atom in waiting else atom

        define(program.inputs, "")
        for op in program.ops:
            ops.append(replace(op, operands=tuple(map(use, op.operands))))
            define(op.results, op.source)
        outputs = tuple(map(use, program.outputs))
        return replace(program, ops=tuple(ops), outputs=outputs)

    def _copies(
        self, value: Value, count: int, source: object
    ) -> tuple[list[Op], list[Value]]:
        """The `dup` ops that turn one value into `count` values, and these values.

        If `count` is 0, the op is a `drop`.
        """
        if not count:
            return [Op(DROP, (value,), (), source=source)], []
        ops: list[Op] = []
        copies: list[Value] = []
        for _ in range(count - 1):
            first, second = fresh(value), fresh(value)
            self.linear.update((first, second))
            ops.append(Op(DUP, (value,), (first, second), source=source))
            copies.append(first)
            value = second
        return ops, [*copies, value]


def _live(ops: Sequence[Op], outputs: Sequence[Atom]) -> tuple[Op, ...]:
    """The ops whose results are read, or that have side effects or bodies."""
    read = set(outputs)
    kept: list[Op] = []
    for op in reversed(ops):
        if op.has_effect or op.bodies or not read.isdisjoint(op.results):
            read.update(op.operands)
            kept.append(op)
    return tuple(reversed(kept))


def _constant_zeros(program: Program) -> set[Atom]:
    """The values of a program that are arrays of zeros whatever its inputs are."""
    zeros: set[Atom] = {
        value
        for value, array in program.constants.items()
        if isinstance(array, np.ndarray) and not array.any()
    }
    for op in program.ops:
        is_same = op.kind in ("broadcast_in_dim", "convert_element_type", "reshape")
        if is_same and (op.operands[0] in zeros or is_zero(op.operands[0])):
            zeros.update(op.results)
    return zeros


def make_implicit(program: Program) -> Program:
    """The program without `dup` and `drop`, whose linear values are used freely."""
    return _without(program, is_erased=False)


def erase(program: Program) -> Program:
    """A program of ordinary ops that computes the same as the linear program.

    Raises `AutodiffError` for a `custom_vjp` op: it stands for the forward derivative
    of a function with `jax.custom_vjp`, which is unknown.
    """
    return eliminate_dead_code(_without(program, is_erased=True))


def _without(program: Program, is_erased: bool) -> Program:
    """The program without `dup` and `drop`, and without `zero` and others if erased."""
    names: dict[Atom, Atom] = {}
    ops: list[Op] = []
    constants: dict[Value, object] = dict(program.constants)
    for op in program.ops:
        operands = tuple(names.get(a, a) for a in op.operands)
        if op.kind == DUP:
            names.update(dict.fromkeys(op.results, operands[0]))
        elif op.kind == ZERO and is_erased:
            ops.append(zeros_op(op.results[0], op.source))
        elif op.kind == REVERSE_ONLY and is_erased:
            raise AutodiffError(
                f"the function with jax.custom_vjp that is called at {op.source} has no "
                "forward mode; run the transposition, or define it by jax.custom_jvp"
            )
        elif op.kind == CUSTOM_REVERSE and is_erased:
            reverse: Any = op.params["reverse"]
            added, outputs, more = apply_rule(reverse, operands, op.results, op.source)
            ops += added
            constants.update(more)
            names.update(zip(op.results, outputs, strict=True))
        elif op.kind != DROP:
            bodies = tuple(_without(body, is_erased) for body in op.bodies)
            ops.append(replace(op, operands=operands, bodies=bodies))
    outputs = tuple(names.get(a, a) for a in program.outputs)
    return replace(program, ops=tuple(ops), outputs=outputs, constants=constants)
