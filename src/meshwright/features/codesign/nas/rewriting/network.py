"""Networks: a model as a program whose inputs are trainable weights, and one batch."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from meshwright.errors import CaptureError
from meshwright.features.codesign.nas.rewriting.unroll import (
    has_loops,
    run_unrolled,
    stacked_lengths,
)
from meshwright.predict.roofline.work import program_work
from meshwright.program.capture import capture
from meshwright.program.ir import Atom, Program, Value
from meshwright.program.rewrite.dead_code import eliminate_dead_code
from meshwright.program.rules.factors import is_inexact
from meshwright.run.local.execute import run_program


@dataclass(frozen=True, slots=True)
class Weight:
    """A weight, and the source of its first value.

    name: what it is called, and the key of a folder's arrays.
    leaf: the number of the leaf of the user's parameters that it is; `None` for a new one.
    index: the element of that leaf, if it is stacked by layer.
    std, mean: of the normal numbers that a new one starts from.
    """

    name: str
    leaf: int | None = None
    index: int | None = None
    std: float = 0.0
    mean: float = 0.0


@dataclass(frozen=True, eq=False)
class ModelProgram:
    """A model at one size of batch.

    program: its inputs are the weights and then the batch; its only output are the scores.
    weights: one for each input but the last.
    changes: what was replaced by what, in order, for people.
    """

    program: Program
    weights: tuple[Weight, ...]
    changes: tuple[str, ...] = ()

    def __call__(self, weights: Sequence[Any], x: Any) -> Any:
        """The scores of a batch; JAX can trace and differentiate it."""
        return run_program(self.program, [*weights, x])[0]

    @property
    def batch(self) -> int:
        """Examples of one batch."""
        return self.program.inputs[-1].shape[0]

    @cached_property
    def flops(self) -> int:
        """Operations for one example, of the forward pass."""
        return program_work(self.program).flops // self.batch

    @cached_property
    def parameters(self) -> int:
        """Trainable numbers."""
        return sum(math.prod(v.shape) for v in self.program.inputs[:-1])

    @cached_property
    def activations(self) -> frozenset[Atom]:
        """The values that depend on the batch, rather than on weights alone."""
        found: set[Atom] = {self.program.inputs[-1]}
        for op in self.program.ops:
            if not found.isdisjoint(op.operands):
                found.update(op.results)
        return frozenset(found)

    def initial(self, leaves: Sequence[Any], key: Array) -> list[Array]:
        """The first values of all weights, from the user's leaves and a key."""
        found: list[Array] = []
        for i, (weight, value) in enumerate(
            zip(self.weights, self.program.inputs[:-1], strict=True)
        ):
            if weight.leaf is not None:
                leaf = leaves[weight.leaf]
                own = leaf if weight.index is None else leaf[weight.index]
                found.append(jnp.asarray(own))
                continue
            drawn = jax.random.normal(jax.random.fold_in(key, i), value.shape)
            found.append((weight.mean + weight.std * drawn).astype(value.dtype))
        return found


def capture_network(fn: Callable[..., Any], params: Any, x: Any) -> ModelProgram:
    """The network of `fn(params, x)`, whose result is one array with a row per example."""
    captured = capture(fn, (params, x), names=("params", "x"))
    program = captured.program
    if len(captured.paths) == 0 or not captured.paths[-1].startswith("x"):
        raise CaptureError("the model reads no batch; wanted fn(params, x) -> scores")
    if len(program.outputs) != 1 or not isinstance(program.outputs[0], Value):
        what = f"{len(program.outputs)} results"
        raise CaptureError(f"the model has {what}; wanted fn(params, x) -> scores")
    if not all(is_inexact(value.dtype) for value in program.inputs[:-1]):
        raise CaptureError(
            "the model has parameters that are no floats, and not trainable"
        )
    weights = tuple(Weight(path, i) for i, path in enumerate(captured.paths[:-1]))
    if has_loops(program):
        return tidied(_unrolled(ModelProgram(program, weights)))
    return tidied(ModelProgram(program, weights))


def _unrolled(network: ModelProgram) -> ModelProgram:
    """The network with each iteration of its scans written out."""
    program, lengths = network.program, stacked_lengths(network.program)
    weights: list[Weight] = []
    given: list[Any] = []
    for weight, value in zip(network.weights, program.inputs, strict=False):
        if value not in lengths:
            weights.append(weight)
            given.append(jax.ShapeDtypeStruct(value.shape, value.dtype))
            continue
        part = jax.ShapeDtypeStruct(value.shape[1:], value.dtype)
        given.append([part] * lengths[value])
        weights += [
            replace(weight, name=f"{weight.name}.{i}", index=i)
            for i in range(lengths[value])
        ]
    x = program.inputs[-1]
    batch = jax.ShapeDtypeStruct(x.shape, x.dtype)

    def fn(weights: list[Any], x: Any) -> Any:
        return run_unrolled(program, [*weights, x])[0]

    return ModelProgram(capture(fn, (given, batch)).program, tuple(weights))


def tidied(network: ModelProgram) -> ModelProgram:
    """The network without dead ops, and without weights that nothing reads."""
    program = eliminate_dead_code(network.program)
    read: set[Atom] = set(program.outputs).union(*(op.operands for op in program.ops))
    kept = [i for i, v in enumerate(program.inputs[:-1]) if v in read]
    inputs = (*(program.inputs[i] for i in kept), program.inputs[-1])
    return ModelProgram(
        Program(inputs, program.ops, program.outputs, program.constants),
        tuple(network.weights[i] for i in kept),
        network.changes,
    )


def renamed(values: Mapping[Atom, Atom], atoms: Sequence[Atom]) -> tuple[Atom, ...]:
    """The atoms, with those that are replaced."""
    return tuple(values.get(atom, atom) for atom in atoms)
