"""Groups of ops that ONNX has one op for, found by their JAX definitions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from meshwright.features.deploy.onnx.patterns import Index, Match, traced
from meshwright.features.deploy.onnx.simplifications import COMBINED, MOVES, Rewrite
from meshwright.program.ir import Atom, Op, Program, Value
from meshwright.program.rewrite.dead_code import eliminate_dead_code

Shape = tuple[int, ...]


def fuse_ops(program: Program) -> Program:
    """The program with one op for what JAX computes in several, in bodies too."""
    return _in_order(program, (MOVES, _PATTERNS))


def combine_ops(program: Program) -> Program:
    """The legalized program with ops that ONNX nodes combine, such as a sum and its mean.

    Their results are only what their converters make of them: no later step may compute
    them by their JAX primitive.
    """
    return _in_order(
        program, (COMBINED, COMBINED)
    )  # a mean, of a sum that keeps its dims


def _in_order(
    program: Program, passes: Sequence[Mapping[str, Sequence[Rewrite]]]
) -> Program:
    bodies = (
        replace(op, bodies=tuple(_in_order(body, passes) for body in op.bodies))
        for op in program.ops
    )
    program = replace(program, ops=tuple(bodies))
    for rewrites in passes:
        program = eliminate_dead_code(_rewritten(program, rewrites))
    return program


def _rewritten(program: Program, rewrites: Mapping[str, Sequence[Rewrite]]) -> Program:
    index = Index(program)
    env: dict[Atom, Atom] = {}
    ops: list[Op] = []
    for op in program.ops:
        made: Sequence[Op] | Atom = (op,)
        for rewrite in rewrites.get(op.kind, ()):
            found = rewrite(index, op)
            if found is not None:
                made = found
                break
        if isinstance(made, Sequence):
            ops += [
                replace(each, operands=tuple(env.get(a, a) for a in each.operands))
                for each in made
            ]
        else:
            env[op.results[0]] = env.get(made, made)
    outputs = tuple(env.get(a, a) for a in program.outputs)
    return Program(program.inputs, tuple(ops), outputs, program.constants)


# -- patterns --------------------------------------------------------------------------


def _softmax(x: Any, largest: Any) -> Any:
    powers = lax.exp(x - largest)
    return powers / powers.sum(-1, keepdims=True)


def _log_softmax(x: Any, largest: Any) -> Any:
    gap = x - largest
    return gap - lax.log(lax.exp(gap).sum(-1, keepdims=True))


def _linen_norm(x: Any, eps: Any, scale: Any) -> Any:
    """Layer normalization as linen and nnx compute it, without a bias."""
    mean = x.mean(-1)
    variance = jnp.maximum(0.0, lax.square(x).mean(-1) - lax.square(mean))
    factor = lax.rsqrt(variance[..., None] + eps)
    return (x - mean[..., None]) * (factor * scale)


def _plain_norm(x: Any, eps: Any, scale: Any) -> Any:
    """Layer normalization by `jnp.mean` and `jnp.var`, without a bias."""
    mean = x.mean(-1, keepdims=True)
    factor = lax.rsqrt(jnp.var(x, -1, keepdims=True) + eps)
    return (x - mean) * factor * scale


def _with_row(shape: Shape) -> tuple[Shape, ...]:
    """Shapes of an array, and of a number for each of its rows."""
    return (shape, (*shape[:-1], 1))


def _with_scale(shape: Shape) -> tuple[Shape, ...]:
    """Shapes of an array, a number, and of a factor for each element of a row."""
    return (shape, (), (*[1] * (len(shape) - 1), shape[-1]))


def _with_bias(shape: Shape) -> tuple[Shape, ...]:
    return (*_with_scale(shape), _with_scale(shape)[-1])


def _biased(norm: Callable[..., Any]) -> Callable[..., Any]:
    def function(x: Any, eps: Any, scale: Any, bias: Any) -> Any:
        return norm(x, eps, scale) + bias

    return function


def _alone(shape: Shape) -> tuple[Shape, ...]:
    return (shape,)


def _is_largest(index: Index, inputs: Sequence[Atom]) -> bool:
    """Whether the second input comes from a maximum, so that no exponential overflows."""
    atom, moves = inputs[1], ("broadcast_in_dim", "reshape", "transpose", "max")
    while (op := index.maker(atom, *moves)) is not None:
        atom = op.operands[-1]
    return index.maker(atom, "reduce_max") is not None


def _is_anything(index: Index, inputs: Sequence[Atom]) -> bool:
    del index, inputs
    return True


def _fusion(
    kind: str,
    function: Callable[..., Any],
    shapes: Callable[[Shape], tuple[Shape, ...]] = _alone,
    check: Callable[[Index, Sequence[Atom]], bool] = _is_anything,
    **params: Any,
) -> Rewrite:
    """A rewrite of ops that compute a function to one op of a kind.

    shapes: of the function's arguments, by the shape of its result. A scalar argument is
        the parameter `epsilon` of the op, and has to be a constant.
    """

    def rewrite(index: Index, op: Op) -> Sequence[Op] | None:
        result = op.results[0]
        if result.dtype != "float32" or not result.shape:
            return None
        pattern = traced(function, shapes(result.shape), result.dtype)
        match = Match(pattern, index)
        if not match.found(op):
            return None
        inputs = [match.inputs[v] for v in pattern.program.inputs if v in match.inputs]
        if len(inputs) != len(pattern.program.inputs) or not check(index, inputs):
            return None
        given = dict(params)
        for atom in [a for a in inputs if not a.shape]:
            given["epsilon"] = index.number(atom)
            inputs.remove(atom)
        if None in given.values() or not any(isinstance(a, Value) for a in inputs):
            return None
        return (Op(kind, tuple(inputs), op.results, given, source=op.source),)

    return rewrite


def _gelu(x: Any) -> Any:
    return jax.nn.gelu(x, approximate=True)


def _exact_gelu(x: Any) -> Any:
    return jax.nn.gelu(x, approximate=False)


_PATTERNS: Mapping[str, Sequence[Rewrite]] = {
    "mul": (
        _fusion("gelu", _gelu, approximate="tanh"),
        _fusion("gelu", _exact_gelu, approximate="none"),
        _fusion("layer_norm", _linen_norm, _with_scale),
        _fusion("layer_norm", _plain_norm, _with_scale),
    ),
    "add": (
        _fusion("layer_norm", _biased(_linen_norm), _with_bias),
        _fusion("layer_norm", _biased(_plain_norm), _with_bias),
    ),
    "div": (
        _fusion("softmax", _softmax, _with_row, _is_largest),
        _fusion("hard_sigmoid", jax.nn.hard_sigmoid),
    ),
    "sub": (_fusion("log_softmax", _log_softmax, _with_row, _is_largest),),
}
"""Rewrites by the kind of the last op."""
