"""The language of linear programs: programs in which some values are marked as linear.

A linear value depends linearly on the linear inputs of the program; all other values do
not depend on them at all. As in the paper's language Linear A, each linear value is
used exactly once. `dup` copies a value that is needed twice, `drop` consumes a value
that is not needed, and `zero` makes a linear zero. This makes transposition simple: it
exchanges `dup` with addition, and `drop` with `zero`. A linear value prints as `@n`,
any other as `%n`:

    program(%0: f32[3], @1: f32[3]) {
      @2: f32[3], @3: f32[3] = dup @1
      @4: f32[3] = mul @2, %0
      @5: f32[3] = add_any @4, @3
      return @5
    }

`linear_sets` says in which operands an op is linear. Mostly it asks the op's factor
rule in `program/ops`, which knows this: a partial sum may pass through an op only if
the op is linear. The table below adds ops that a factor rule excludes, since they round
addends otherwise than the sum; rounding does not matter for derivatives.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from jax.interpreters import ad

from meshwright.program.ir import Atom, Literal, Op, Program, ProgramWriter, Value
from meshwright.program.ops import known_ops, rule_of

DUP, DROP, ZERO = "dup", "drop", "zero"
ADD = "add_any"
REVERSE_ONLY = "custom_vjp"
CUSTOM_REVERSE = "custom_vjp_transpose"
"""Kind of the transposed op of `custom_vjp` (`REVERSE_ONLY`).

`custom_vjp` is the derivative of a function with `jax.custom_vjp`; the transposed op
calls the user's backward function.
"""

_FIRST = (frozenset({0}),)

_ALWAYS_LINEAR = {
    DUP: _FIRST,
    DROP: _FIRST,
    ZERO: (),
    "convert_element_type": _FIRST,
    "div": _FIRST,
    "gather": _FIRST,
    "reduce_precision": _FIRST,
    "scatter": (frozenset({0, 2}), frozenset({0})),
    "scatter-add": (frozenset({0, 2}),),
    "scatter-mul": (frozenset({0}), frozenset({2})),
}
"""By kind, sets of operands in which an op is linear, where factor rules differ."""


@dataclass(frozen=True, slots=True, eq=False)
class LinearProgram:
    """A program, and the set of its linear values, those in nested programs included.

    Nonlinear inputs come before linear inputs.
    """

    program: Program
    linear: frozenset[Value]

    @property
    def linear_inputs(self) -> tuple[Value, ...]:
        """The linear inputs, in order."""
        return tuple(v for v in self.program.inputs if v in self.linear)

    @property
    def other_inputs(self) -> tuple[Value, ...]:
        """The inputs that are not linear, in order."""
        return tuple(v for v in self.program.inputs if v not in self.linear)

    def __str__(self) -> str:
        writer = ProgramWriter(self.linear)
        return "\n".join(writer.program(self.program, "program", ""))


def linear_sets(op: Op) -> tuple[frozenset[int], ...]:
    """Sets of operand positions, in each of which an op is linear jointly.

    `add_any`, for example, has one set with both operands. `mul` has two sets of one
    operand: it is linear in either operand if the other one is not linear.
    """
    if op.kind in _ALWAYS_LINEAR:
        return _ALWAYS_LINEAR[op.kind]
    if op.kind == "polynomial":  # in its coefficients
        return (frozenset(range(1, len(op.operands))),)
    if op.kind in (REVERSE_ONLY, CUSTOM_REVERSE):
        return (frozenset(range(int(str(op.params["saved"])), len(op.operands))),)
    if op.kind == "custom_linear_solve":
        lengths: Any = op.params["const_lengths"]
        return (frozenset(range(sum(lengths), len(op.operands))),)
    if op.kind in known_ops():
        return rule_of(op).linear
    return _of_jax(op)


def _of_jax(op: Op) -> tuple[frozenset[int], ...]:
    """One set per operand of an op without a factor rule that JAX can transpose."""
    if op.primitive not in ad.primitive_transposes:
        return ()
    return tuple(frozenset({i}) for i in range(len(op.operands)))


def is_linear_in(op: Op, positions: Collection[int]) -> bool:
    """Whether an op is jointly linear in the operands at these positions.

    Further operands of the same set may be literal zeros.
    """
    wanted = frozenset(positions)
    return any(
        wanted == found
        or (wanted < found and all(is_zero(op.operands[i]) for i in found - wanted))
        for found in linear_sets(op)
    )


def is_zero(atom: Atom) -> bool:
    """Whether an atom is the literal 0."""
    return isinstance(atom, Literal) and not bool(atom.value)


def positions_in(atoms: Iterable[Atom], values: Collection[Value]) -> tuple[int, ...]:
    """The positions in `atoms` of atoms that are in `values`."""
    return tuple(i for i, atom in enumerate(atoms) if atom in values)
