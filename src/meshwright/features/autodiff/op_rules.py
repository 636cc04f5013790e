"""Derivative and transposition rules of single ops, taken from JAX.

JAX has rules for its primitives, and users register rules for theirs. A rule is traced
once for each combination of an op's kind, parameters and types, and read back as a
program in Meshwright's IR. Only single ops use JAX's rules: loops, branches, residuals
and sums of cotangents are the work of the transformations in this folder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import compress
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from meshwright.errors import AutodiffError
from meshwright.features.autodiff.region_links import fresh
from meshwright.jax_private import tracing_config
from meshwright.program.capture import aval_of, convert
from meshwright.program.ir import Atom, Literal, Op, Program, Value
from meshwright.program.rewrite.common_subexpressions import exact_key
from meshwright.program.rewrite.dead_code import eliminate_dead_code
from meshwright.program.rewrite.recomputation import copied
from meshwright.run.local.execute import run_program

CALLS = frozenset({"custom_jvp_call", "custom_vjp_call"})
"""Kinds of ops that call a function whose user defined its derivative."""

KEPT = CALLS | {"custom_linear_solve"}
"""Primitives that capture keeps as ops, since forward mode has to see them."""


@dataclass(frozen=True, slots=True, eq=False)
class OpRule:
    """A derivative or transposition rule of one op, as a program.

    program: its inputs are the op's operands (without literals), then tangents or
        cotangents. Its outputs are those of the rule, without outputs that are always
        zero.
    present: for each output of the rule, whether it is an output of `program`.
    """

    program: Program
    present: tuple[bool, ...]


def jvp_rule(op: Op, active: tuple[int, ...]) -> OpRule:
    """The rule that computes an op's results and their tangents.

    active: positions of the operands that have tangents.
    """
    return _cached(_Question(_trace_jvp, op, active, _identity(op)))


def transpose_rule(op: Op, linear: tuple[int, ...]) -> OpRule:
    """The rule from cotangents of the results to those of the linear operands.

    linear: positions of the linear operands, which are not inputs of the rule's
        program.
    """
    return _cached(_Question(_trace_transpose, op, linear, _identity(op)))


@dataclass(frozen=True, slots=True)
class _Question:
    """The key under which a rule is cached.

    trace_fn: function that traces the rule. positions: of the active or linear operands.
    identity: what else the rule depends on, as `_identity` returns it.
    """

    trace_fn: Callable[[Op, tuple[int, ...]], OpRule]
    op: Op = field(compare=False)
    positions: tuple[int, ...]
    identity: object


def _cached(question: _Question) -> OpRule:
    try:
        hash(question)
    except TypeError:
        return _answer(question)
    return _answer_once(question)


def _answer(question: _Question) -> OpRule:
    op = question.op
    try:
        return question.trace_fn(op, question.positions)
    except (TypeError, ValueError, NotImplementedError, AssertionError) as error:
        is_jvp = question.trace_fn is _trace_jvp
        what = "differentiated" if is_jvp else "transposed"
        raise AutodiffError(
            f"{op.kind} at {op.source or 'an unknown line'} cannot be {what}; JAX says: "
            f"{error}. Give the function that calls it a rule by jax.custom_jvp, or "
            "jax.lax.stop_gradient for its operands"
        ) from error


_answer_once = lru_cache(maxsize=4096)(_answer)


def _identity(op: Op) -> object:
    """A key of all that a rule depends on: primitive, parameters, types, literals."""
    operands = tuple(
        (a.dtype, exact_key(a.value)) if isinstance(a, Literal) else (a.shape, a.dtype)
        for a in op.operands
    )
    params = tuple((name, exact_key(op.params[name])) for name in sorted(op.params))
    return op.kind, op.primitive, params, operands, tracing_config()


def _trace_jvp(op: Op, active: tuple[int, ...]) -> OpRule:
    values = value_positions(op)
    floats = [is_differentiable(r.dtype) for r in op.results]

    def rule(primals: Sequence[Any], tangents: Sequence[Any]) -> list[Any]:
        operands = dict(zip(values, primals, strict=True))
        fn = function_at(op, active, operands)
        some = tuple(operands[i] for i in active)
        results, dots = jax.jvp(fn, some, tuple(tangents))
        return [*results, *compress(dots, floats)]

    types = [[aval_of(op.operands[i]) for i in each] for each in (values, active)]
    program = convert(jax.make_jaxpr(rule)(*types), kept={"custom_linear_solve"})
    return _without_zeros(program, len(values), len(op.results), floats)


def _trace_transpose(op: Op, linear: tuple[int, ...]) -> OpRule:
    others = [i for i in value_positions(op) if i not in linear]
    types = [aval_of(op.operands[i]) for i in linear]

    def rule(primals: Sequence[Any], cotangents: Sequence[Any]) -> Sequence[Any]:
        fn = function_at(op, linear, dict(zip(others, primals, strict=True)))
        return jax.linear_transpose(fn, *types)(list(cotangents))

    primals = [aval_of(op.operands[i]) for i in others]
    traced = jax.make_jaxpr(rule)(primals, [aval_of(r) for r in op.results])
    program = convert(traced, kept={"custom_linear_solve"})
    return _without_zeros(program, len(others), 0, [True] * len(linear))


def _without_zeros(
    program: Program, num_given: int, num_results: int, floats: Sequence[bool]
) -> OpRule:
    """The rule without outputs that depend on no input from `num_given` on.

    Such outputs are always zero.

    num_results: number of outputs before the tangents or cotangents; all of them stay.
    floats: for each result of the op, whether the program has a tangent or cotangent of
        it.
    """
    reached = depends_on(program, program.inputs[num_given:])
    rest = iter(program.outputs[num_results:])
    present = tuple(is_float and next(rest) in reached for is_float in floats)
    others = (a for a in program.outputs[num_results:] if a in reached)
    kept = replace(program, outputs=(*program.outputs[:num_results], *others))
    return OpRule(eliminate_dead_code(kept), present)


def depends_on(program: Program, inputs: Sequence[Value]) -> set[Atom]:
    """The values of a program, without its bodies, that depend on `inputs`."""
    reached: set[Atom] = set(inputs)
    for op in program.ops:
        if not reached.isdisjoint(op.operands):
            reached.update(op.results)
    return reached


def value_positions(op: Op) -> list[int]:
    """The positions of an op's operands that are no literals."""
    return [i for i, atom in enumerate(op.operands) if isinstance(atom, Value)]


def function_at(
    op: Op, positions: Sequence[int], others: Mapping[int, Any]
) -> Callable[..., list[Any]]:
    """The op as a function of its operands at `positions`.

    others: arrays of its other operands but literals, by position.
    """
    inputs = {i: fresh(op.operands[i]) for i in value_positions(op)}
    operands = tuple(inputs.get(i, atom) for i, atom in enumerate(op.operands))
    single = replace(op, operands=operands)
    program = Program(tuple(inputs.values()), (single,), op.results)

    def run(*arrays: Any) -> list[Any]:
        every = {**others, **dict(zip(positions, arrays, strict=True))}
        return run_program(program, [every[i] for i in inputs])

    return run


def is_differentiable(dtype: str) -> bool:
    """Whether values of this dtype have tangents: floats and complex numbers."""
    if dtype.startswith("key<") or dtype == "float0":
        return False
    return bool(jnp.issubdtype(jnp.dtype(dtype), jnp.inexact))


def apply_rule(
    program: Program,
    inputs: Sequence[Atom],
    results: Sequence[Value],
    source: object,
) -> tuple[list[Op], list[Atom], Mapping[Value, object]]:
    """The ops, outputs and constants of a rule's program after inlining it on `inputs`.

    results: values to use in place of the program's first outputs.
    """
    names: dict[Atom, Atom] = dict(zip(program.inputs, inputs, strict=True))
    wanted: dict[Atom, Value] = {}
    for output, result in zip(program.outputs, results, strict=False):
        wanted.setdefault(output, result)
    constants: dict[Value, object] = {}
    for value, array in program.constants.items():
        names[value] = made = fresh(value)
        constants[made] = array
    ops: list[Op] = []
    for op in program.ops:
        results_here = tuple(wanted.get(r) or fresh(r) for r in op.results)
        ops.append(
            replace(
                op,
                operands=tuple(names.get(a, a) for a in op.operands),
                results=results_here,
                bodies=tuple(map(copied, op.bodies)),
                source=source or op.source,
            )
        )
        names.update(zip(op.results, results_here, strict=True))
    return ops, [names.get(a, a) for a in program.outputs], constants


def zeros_op(value: Value, source: object) -> Op:
    """An ordinary op that fills the array `value` with zeros."""
    zero = Literal(np.zeros((), jnp.dtype(value.dtype))[()], value.dtype)
    return full_op(zero, value, source)


def full_op(number: Literal, value: Value, source: object) -> Op:
    """An ordinary op that fills the array `value` with one number."""
    params = {"shape": value.shape, "broadcast_dimensions": (), "sharding": None}
    primitive = lax.broadcast_in_dim_p
    return Op(primitive.name, (number,), (value,), params, (), source, primitive)
