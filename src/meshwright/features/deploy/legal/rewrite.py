"""Replacement of ops by traced JAX functions, inside of loops and branches too."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from meshwright.features.deploy.source.inexpressible import Inexpressible
from meshwright.program.capture import capture
from meshwright.program.ir import Atom, Literal, Op, Program, Value
from meshwright.run.local.execute import run_program

Rule = Callable[[Op], Callable[..., Any] | None]
"""A function of an op: the JAX function that replaces it; `None` if the op stays."""

Rules = Mapping[str, Rule]
"""Rules by kind of op."""


def rewrite_ops(program: Program, rules: Rules) -> Program:
    """The program whose ops are replaced where a rule returns a function.

    The ops of a replacement are not replaced again, so that a rule may use its own kind.
    Their source is that of the replaced op.
    """
    env: dict[Atom, Atom] = {}
    constants = dict(program.constants)
    ops: list[Op] = []
    for op in program.ops:
        operands = tuple(env.get(a, a) for a in op.operands)
        bodies = tuple(rewrite_ops(body, rules) for body in op.bodies)
        moved = replace(op, operands=operands, bodies=bodies)
        function = rules[op.kind](moved) if op.kind in rules else None
        if function is None:
            ops.append(moved)
            continue
        try:
            outputs = splice(ops, constants, moved, function)
        except Inexpressible as failure:
            raise Inexpressible(str(failure), op) from None
        env.update(zip(op.results, outputs, strict=True))
    outputs = tuple(env.get(a, a) for a in program.outputs)
    return Program(program.inputs, tuple(ops), outputs, constants)


def splice(
    ops: list[Op],
    constants: dict[Value, Any],
    op: Op,
    function: Callable[..., Any],
    operands: Sequence[Atom] | None = None,
) -> list[Atom]:
    """Append the ops of `function`, traced on an op's operands; return its outputs.

    operands: other operands than those of the op. ops, constants: extended.
    """
    given = op.operands if operands is None else operands
    values = [v for v in dict.fromkeys(given) if isinstance(v, Value)]

    def traced(*arrays: Any) -> list[Any]:
        known = dict(zip(values, arrays, strict=True))
        read = [
            jnp.asarray(a.value, a.dtype) if isinstance(a, Literal) else known[a]
            for a in given
        ]
        return jax.tree.leaves(function(*read))

    types = [jax.ShapeDtypeStruct(v.shape, v.dtype) for v in values]
    made = capture(traced, types).program
    env: dict[Atom, Atom] = dict(zip(made.inputs, values, strict=True))
    constants.update(made.constants)
    for each in made.ops:
        inner = tuple(env.get(a, a) for a in each.operands)
        ops.append(replace(each, operands=inner, source=op.source))
    return [env.get(a, a) for a in made.outputs]


def call_op(op: Op, *operands: Any) -> Any:
    """The result of an op on other operands, or a list of its results."""
    values = tuple(Value(x.shape, str(x.dtype)) for x in operands)
    alone = Program(values, (replace(op, operands=values),), op.results)
    results = run_program(alone, operands)
    return results[0] if len(results) == 1 else results


def elementwise(op: Op, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function on operands that are broadcast to the shape of the op's result."""
    shape = op.results[0].shape
    return lambda *xs: function(*(jnp.broadcast_to(x, shape) for x in xs))


def is_integer(dtype: str) -> bool:
    """Whether a dtype is a signed or unsigned integer."""
    return dtype.startswith(("int", "uint"))


def is_float(dtype: str) -> bool:
    """Whether a dtype is a real floating-point number."""
    return dtype.startswith(("float", "bfloat"))
