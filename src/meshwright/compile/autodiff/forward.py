"""Forward mode: a program that also computes the tangents of its outputs.

Each op is followed by its derivative, which is linear in the tangents. Values that do not
depend on differentiated inputs have no tangents at all (symbolic zeros), and neither have
integers. A region op gets a second wire beside each wire that carries tangents; which ones
do is a fixed point, so that scans, while loops, conds and remats need no rules of their
own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from meshwright.compile.autodiff.custom_vjp import custom_vjp_rule
from meshwright.compile.autodiff.links import (
    Body,
    Link,
    fresh,
    is_condition,
    links_of,
    region_op,
)
from meshwright.compile.autodiff.op_rules import (
    CALLS,
    apply_rule,
    full_op,
    is_differentiable,
    jvp_rule,
)
from meshwright.compile.autodiff.typing import ZERO
from meshwright.errors import AutodiffError
from meshwright.program.capture import convert
from meshwright.program.ir import Atom, Literal, Op, Program, Value


@dataclass(frozen=True, slots=True, eq=False)
class Forward:
    """A program with tangents.

    program: its inputs are those of the original program, then the tangents; its outputs
        are the original ones, then their tangents. Original values keep their identity.
    tangents: the inputs that are tangents.
    present: for each original output, whether it has a tangent.
    """

    program: Program
    tangents: tuple[Value, ...]
    present: tuple[bool, ...]


def forward(program: Program, active: Collection[Value]) -> Forward:
    """The program with tangents of the inputs in `active`, and of what depends on them."""
    tangents: dict[Atom, Value] = {v: fresh(v) for v in program.inputs if v in active}
    inputs = tuple(tangents.values())
    inside = _Inside(tangents, program.constants)
    inside.run(program.ops)
    outputs = tuple(map(inside.name, program.outputs))
    dots = [inside.tangents.get(atom) for atom in program.outputs]
    return Forward(
        Program(
            (*program.inputs, *inputs),
            tuple(inside.ops),
            (*outputs, *(dot for dot in dots if dot is not None)),
            inside.constants,
        ),
        inputs,
        tuple(dot is not None for dot in dots),
    )


class _Inside:
    """The ops of one program or body, with tangents as far as they have been made.

    tangents: by value of the original program; values that are missing have none.
    names: atoms that stand for results of the original program.
    """

    def __init__(
        self, tangents: dict[Atom, Any], constants: Mapping[Value, object]
    ) -> None:
        self.tangents = tangents
        self.constants: dict[Value, object] = dict(constants)
        self.names: dict[Atom, Atom] = {}
        self.ops: list[Op] = []

    def name(self, atom: Atom) -> Atom:
        """The atom that stands for an atom of the original program."""
        return self.names.get(atom, atom)

    def run(self, ops: Sequence[Op]) -> None:
        """Append each op, and its derivative where tangents reach it."""
        for op in ops:
            if op.bodies:
                self._region(op)
            else:
                self._op(op)

    def _op(self, op: Op) -> None:
        active = tuple(i for i, a in enumerate(op.operands) if a in self.tangents)
        if op.kind == "shard_map" and active:
            raise AutodiffError(
                f"shard_map at {op.source or 'an unknown line'} cannot be differentiated "
                "here; write the function for one device, and let mw.partition split it"
            )
        named = replace(op, operands=tuple(map(self.name, op.operands)))
        if not active:
            self._plain(named)
            return
        if op.has_effect:
            self.ops.append(named)
            return
        if op.kind == "custom_jvp_call":
            named, active = self._all_active(named, op)
        is_custom = op.kind == "custom_vjp_call"
        rule = (custom_vjp_rule if is_custom else jvp_rule)(named, active)
        dots = [self.tangent(op.operands[i], op) for i in active]
        given = [a for a in named.operands if isinstance(a, Value)]
        outputs = self._apply(rule.program, [*given, *dots], op)
        rest = iter(outputs[len(op.results) :])
        for result, is_present in zip(op.results, rule.present, strict=True):
            if is_present:
                self.tangents[result] = next(rest)

    def _all_active(self, named: Op, op: Op) -> tuple[Op, tuple[int, ...]]:
        """A call with a rule of the user's, all of whose floats get tangents.

        The rule may compute with tangents that are zero, which then is linear, too.
        """
        floats = [i for i, a in enumerate(op.operands) if is_differentiable(a.dtype)]
        operands = list(named.operands)
        for i in floats:
            atom = operands[i]
            if isinstance(atom, Literal):
                operands[i] = value = fresh(atom)
                self.ops.append(full_op(atom, value, op.source))
        return replace(named, operands=tuple(operands)), tuple(floats)

    def tangent(self, atom: Atom, op: Op) -> Value:
        """The tangent of an operand; `zero` if it has none."""
        found = self.tangents.get(atom)
        return self.zero(atom, op) if found is None else found

    def _plain(self, op: Op) -> None:
        """An op that no tangent reaches; a call is inlined."""
        if op.kind not in CALLS:
            self.ops.append(op)
            return
        self._apply(convert(op.params["call_jaxpr"]), op.operands, op)

    def _apply(self, program: Program, inputs: Sequence[Atom], op: Op) -> list[Atom]:
        """Append a rule's ops, note its names for the op's results, return its outputs."""
        ops, outputs, constants = apply_rule(program, inputs, op.results, op.source)
        self.ops += ops
        self.constants.update(constants)
        for result, output in zip(op.results, outputs, strict=False):
            if output is not result:
                self.names[result] = output
        return outputs

    def _region(self, op: Op) -> None:
        links = links_of(op)
        active = {i for i, link in enumerate(links) if link.operand in self.tangents}
        while True:
            insides = [_body(op, b, links, active) for b in range(len(op.bodies))]
            grown = active | {
                i
                for i, link in enumerate(links)
                if any(a in insides[b].tangents for b, a in link.outputs.items())
            }
            if grown == active:
                break
            active = grown
        twins = [self._twin(op, links[i], insides) for i in sorted(active)]
        named = [self._named(link, insides) for link in links]
        bodies = [Body(inside.ops, inside.constants) for inside in insides]
        self.ops.append(region_op(op, [*named, *twins], bodies))

    def _twin(self, op: Op, link: Link, insides: Sequence[_Inside]) -> Link:
        """The link of the tangents beside a link."""
        operand = None
        if link.operand is not None:
            operand = self.tangent(link.operand, op)
        result = None
        if link.result is not None:
            result = self.tangents[link.result] = fresh(link.result)
        return Link(
            operand,
            {
                b: insides[b].tangents[v]
                for b, v in link.inputs.items()
                if not is_condition(op, b)
            },
            {b: insides[b].tangent(a, op) for b, a in link.outputs.items()},
            result,
            link.is_stacked,
        )

    def _named(self, link: Link, insides: Sequence[_Inside]) -> Link:
        operand = None if link.operand is None else self.name(link.operand)
        outputs = {b: insides[b].name(a) for b, a in link.outputs.items()}
        return replace(link, operand=operand, outputs=outputs)

    def zero(self, like: Atom, op: Op) -> Value:
        """A tangent that is zero, where a region op needs one."""
        value = fresh(like)
        self.ops.append(Op(ZERO, (), (value,), source=op.source))
        return value


def _body(
    op: Op, which: int, links: Sequence[Link], active: Collection[int]
) -> _Inside:
    """One body with tangents of the inputs on the links in `active`."""
    tangents: dict[Atom, Any] = {}
    if not is_condition(op, which):
        for i in active:
            value = links[i].inputs.get(which)
            if value is not None:
                tangents[value] = fresh(value)
    inside = _Inside(tangents, op.bodies[which].constants)
    inside.run(op.bodies[which].ops)
    return inside
