"""Transposition: from a linear program to the one that maps cotangents backwards.

Ops that are not linear come first, unchanged. Then the linear ops follow in reverse
order, each transposed. A linear value is used exactly once, so it has exactly one
cotangent. `dup` becomes an addition, and an addition `dup`. `zero` becomes `drop`;
`drop` becomes `zero`, which is not written: the cotangent is simply missing (a symbolic
zero). In a loop or branch, linear inputs and outputs change places: a carry stays a
carry, an array that a scan reads slice by slice becomes one that it stacks, and the
scan runs backwards.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from jax.interpreters.ad import add_jaxvals_p

from meshwright.errors import AutodiffError
from meshwright.features.autodiff.check_linear import check_linear
from meshwright.features.autodiff.custom_vjp import transposed_custom_vjp
from meshwright.features.autodiff.explicit import make_explicit
from meshwright.features.autodiff.op_rules import apply_rule, transpose_rule
from meshwright.features.autodiff.region_links import (
    Body,
    Link,
    fresh,
    links_of,
    region_op,
)
from meshwright.features.autodiff.typing import (
    ADD,
    CUSTOM_REVERSE,
    DROP,
    DUP,
    REVERSE_ONLY,
    ZERO,
    LinearProgram,
    positions_in,
)
from meshwright.program.ir import Atom, Literal, Op, Program, Value


def transpose(linear: LinearProgram) -> LinearProgram:
    """The program from cotangents of the outputs to those of the linear inputs.

    Nonlinear inputs stay inputs. A program that is transposed twice computes the same
    as before. Raises `AutodiffError` for while loops.
    """
    program = linear.program
    inside = _Inside(linear.linear)
    cotangents = tuple(map(fresh, program.outputs))
    inside.run(program.ops, dict(zip(program.outputs, cotangents, strict=True)))
    outputs = tuple(inside.cotangent_or_zero(v) for v in linear.linear_inputs)
    inside.constants.update(program.constants)
    transposed = Program(
        (*linear.other_inputs, *cotangents),
        tuple(inside.ops),
        outputs,
        inside.constants,
    )
    return check_linear(make_explicit(transposed, cotangents))


class _Inside:
    """The transposition of one program, or of one nested program of a loop or branch.

    ops: the transposed ops so far.
    cotangents: by linear value, its cotangent; if it is missing, it is zero.
    entered: the cotangents of the program's outputs, which are inputs of the transposed
        program.
    """

    def __init__(self, linear: Collection[Value]) -> None:
        self.linear = linear
        self.ops: list[Op] = []
        self.constants: dict[Value, object] = {}
        self.cotangents: dict[Atom, Atom] = {}
        self.entered: dict[Atom, Value] = {}

    def run(self, ops: Sequence[Op], cotangents: Mapping[Atom, Value]) -> None:
        """Append the nonlinear ops, then the transposed linear ops in reverse."""
        self.entered = dict(cotangents)
        self.cotangents.update(cotangents)
        backwards: list[Op] = []
        for op in ops:
            is_linear = any(a in self.linear for a in (*op.operands, *op.results))
            (backwards if is_linear else self.ops).append(op)
        for op in reversed(backwards):
            self._op(op)

    def cotangent_or_zero(self, value: Atom, source: object = "") -> Atom:
        """The cotangent of a linear value; a new `zero` if the cotangent is missing."""
        if value in self.cotangents:
            return self.cotangents[value]
        zero = fresh(value)
        self.ops.append(Op(ZERO, (), (zero,), source=source))
        return zero

    def _op(self, op: Op) -> None:
        if all(result not in self.cotangents for result in op.results):
            return
        if op.bodies:
            self._region(op)
        elif op.kind == DUP:
            self._sum(op)
        elif op.kind == ADD:
            self.cotangents.update(
                dict.fromkeys(op.operands, self.cotangents[op.results[0]])
            )
        elif op.kind in (REVERSE_ONLY, CUSTOM_REVERSE):
            self._custom(op)
        elif op.kind not in (DROP, ZERO):
            self._by_rule(op)

    def _sum(self, op: Op) -> None:
        """Add the cotangents of a `dup`'s results: the cotangent of its operand."""
        (value,) = op.operands
        parts = [self.cotangents[r] for r in op.results if r in self.cotangents]
        if len(parts) == 1:
            self.cotangents[value] = parts[0]
            return
        total = fresh(value)
        self.ops.append(add_op(parts, total, op.source))
        self.cotangents[value] = total

    def _custom(self, op: Op) -> None:
        turned = transposed_custom_vjp(op)
        saved = len(turned.operands) - len(op.results)
        given = [self.cotangent_or_zero(r, op.source) for r in op.results]
        operands = (*op.operands[:saved], *given)
        self.ops.append(replace(turned, operands=operands))
        pairs = zip(op.operands[saved:], turned.results, strict=True)
        self.cotangents.update(pairs)

    def _by_rule(self, op: Op) -> None:
        found = positions_in(op.operands, self.linear)
        rule = transpose_rule(op, found)
        others = [
            a for i, a in enumerate(op.operands)
            if i not in found and not isinstance(a, Literal)
        ]  # fmt: skip
        given = [self.cotangent_or_zero(r, op.source) for r in op.results]
        ops, outputs, constants = apply_rule(
            rule.program, [*others, *given], (), op.source
        )
        self.ops += ops
        self.constants.update(constants)
        rest = iter(outputs)
        for i, is_present in zip(found, rule.present, strict=True):
            if is_present:
                self.cotangents[op.operands[i]] = next(rest)

    def _region(self, op: Op) -> None:
        if op.kind == "while":
            raise AutodiffError(
                f"the while loop at {op.source or 'an unknown line'} has no reverse mode: "
                "what its iterations save cannot be counted beforehand. Use jax.lax.scan, "
                "or jax.lax.fori_loop with bounds that are Python numbers; its forward "
                "mode works"
            )
        links = links_of(op)
        reversed_links = [link for link in links if link.is_in(self.linear)]
        kept = [link for link in links if not link.is_in(self.linear)]
        assert all(not link.outputs for link in kept), f"{op.kind} has other results"
        present = {
            i for i, link in enumerate(reversed_links) if link.result in self.cotangents
        }
        while True:
            chosen = [reversed_links[i] for i in sorted(present)]
            insides = [self._body(op, b, chosen) for b in range(len(op.bodies))]
            grown = present | {
                i
                for i, link in enumerate(reversed_links)
                if any(v in insides[b].cotangents for b, v in link.inputs.items())
            }
            if grown == present:
                break
            present = grown
        turned = [self._turned(op, link, insides) for link in chosen]
        bodies = [
            Body(inside.ops, {**body.constants, **inside.constants})
            for body, inside in zip(op.bodies, insides, strict=True)
        ]
        params = dict(op.params)
        if op.kind == "scan":
            params["reverse"] = not params["reverse"]
        self.ops.append(region_op(op, [*kept, *turned], bodies, params=params))

    def _body(self, op: Op, which: int, links: Sequence[Link]) -> _Inside:
        """Transpose nested program `which`, given its outputs' cotangents."""
        outputs = [link.outputs[which] for link in links if which in link.outputs]
        inside = _Inside(self.linear)
        inside.run(op.bodies[which].ops, {a: fresh(a) for a in outputs})
        return inside

    def _turned(self, op: Op, link: Link, insides: Sequence[_Inside]) -> Link:
        """The link of cotangents from the result of a link to its operand."""
        operand = result = None
        if link.result is not None:
            operand = self.cotangent_or_zero(link.result, op.source)
        if link.operand is not None:
            result = fresh(link.operand)
            self.cotangents[link.operand] = result
        inputs = {b: insides[b].entered[a] for b, a in link.outputs.items()}
        outputs = {b: insides[b].cotangent_or_zero(v) for b, v in link.inputs.items()}
        return Link(operand, inputs, outputs, result, link.is_stacked)


def add_op(parts: Sequence[Atom], total: Value, source: object) -> Op:
    """The op that adds two linear values."""
    return Op(ADD, tuple(parts), (total,), {}, (), source, add_jaxvals_p)
