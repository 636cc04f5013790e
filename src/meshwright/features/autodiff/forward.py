"""Forward mode: from a program to one that also computes the tangents of its outputs.

Each op is followed by its derivative, which is linear in the tangents. Integers have no
tangents, and neither have values that do not depend on differentiated inputs (their
tangents are zero, and never written). In a loop, branch or remat, each value that has a
tangent is passed together with its tangent. Which values have one is found by iteration
until nothing changes, so that no derivative rules for loops and branches are needed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from meshwright.errors import AutodiffError
from meshwright.features.autodiff.custom_vjp import custom_vjp_rule
from meshwright.features.autodiff.op_rules import (
    CALLS,
    apply_rule,
    full_op,
    is_differentiable,
    jvp_rule,
)
from meshwright.features.autodiff.region_links import (
    Body,
    Link,
    fresh,
    is_condition,
    links_of,
    region_op,
)
from meshwright.features.autodiff.typing import ZERO
from meshwright.program.capture import convert
from meshwright.program.ir import Atom, Literal, Op, Program, Value


@dataclass(frozen=True, slots=True, eq=False)
class Forward:
    """A program after forward mode.

    program: takes the inputs of the original program, then the tangents. It returns the
        original outputs, then their tangents. The original values are the same objects
        as before.
    tangents: the inputs that are tangents.
    present: for each original output, whether it has a tangent.
    """

    program: Program
    tangents: tuple[Value, ...]
    present: tuple[bool, ...]


def forward(program: Program, active: Collection[Value]) -> Forward:
    """The program that also computes tangents; inputs in `active` have tangents."""
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
    """Forward mode of one program, or of one nested program of a loop or branch.

    tangents: by value of the original program, its tangent; a value without one is
        missing.
    names: by result of the original program, the atom that replaces it in the new
        program.
    """

    def __init__(
        self, tangents: dict[Atom, Any], constants: Mapping[Value, object]
    ) -> None:
        self.tangents = tangents
        self.constants: dict[Value, object] = dict(constants)
        self.names: dict[Atom, Atom] = {}
        self.ops: list[Op] = []

    def name(self, atom: Atom) -> Atom:
        """The atom that replaces an atom of the original program, or that atom."""
        return self.names.get(atom, atom)

    def run(self, ops: Sequence[Op]) -> None:
        """Append each op, and its derivative if one of its operands has a tangent."""
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
        """A call of a `jax.custom_jvp` function, of which all floats have tangents.

        The user's rule may compute something other than zero from zero tangents, and it
        is linear in all of the tangents together. Literals become values, since a rule
        takes only values.
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
        """The tangent of an operand; a new `zero` if the operand has none."""
        found = self.tangents.get(atom)
        return self.zero(atom, op) if found is None else found

    def _plain(self, op: Op) -> None:
        """Append an op whose operands have no tangents; inline it if it is a call."""
        if op.kind not in CALLS:
            self.ops.append(op)
            return
        self._apply(convert(op.params["call_jaxpr"]), op.operands, op)

    def _apply(self, program: Program, inputs: Sequence[Atom], op: Op) -> list[Atom]:
        """Inline the program of a derivative rule for the op; return its outputs."""
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
        """The link that passes the tangents of the values on a link of a region op."""
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
        """A tangent that is zero, for an operand that needs one."""
        value = fresh(like)
        self.ops.append(Op(ZERO, (), (value,), source=op.source))
        return value


def _body(
    op: Op, which: int, links: Sequence[Link], active: Collection[int]
) -> _Inside:
    """Forward mode of nested program `which`, with tangents on links in `active`.

    active: positions in `links` of the values that have tangents.
    """
    tangents: dict[Atom, Any] = {}
    if not is_condition(op, which):
        for i in active:
            value = links[i].inputs.get(which)
            if value is not None:
                tangents[value] = fresh(value)
    inside = _Inside(tangents, op.bodies[which].constants)
    inside.run(op.bodies[which].ops)
    return inside
