"""Every rule against numbers: split each factor, run the parts, compare."""

from __future__ import annotations

import pkgutil
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from itertools import batched, chain
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import meshwright as mw
from meshwright.app.check.compare_outputs import compare
from meshwright.machine import Mesh
from meshwright.partitioner.lower import Lowered, lower
from meshwright.partitioner.propagate import Cause, Graph, Node, State, why_not
from meshwright.program.capture import Captured, capture
from meshwright.program.ir import Program
from meshwright.program.ops import known_ops
from meshwright.run.local.spmd import make_executable
from tests.features.pipeline.stages.test_tasks import staged
from tests.program.ops import catalogue
from tests.program.ops.catalogue import Example

JAX = jax.version.__version_info__
MESH = Mesh({"x": 4, "y": 2})


def all_examples(which: str = "EXAMPLES") -> list[Example]:
    names = sorted(m.name for m in pkgutil.iter_modules(catalogue.__path__))
    modules = (import_module(f"{catalogue.__name__}.{name}") for name in names)
    found = chain.from_iterable(getattr(m, which, ()) for m in modules)
    return [each for each in found if each.since <= JAX]


@cache
def captured(example: Example) -> Captured:
    return capture(example.fn, example.args)


def lowered_parts(program: Program, at_once: int) -> list[Lowered]:
    """Device programs that together split each factor of each op.

    All ops are split at once, each along up to `at_once` of its factors, so that a program
    of ops with at most f factors takes about f / at_once device programs.
    """
    graph = Graph(program)
    left = {node: list(range(len(node.sizes))) for node in graph.op_node.values()}
    lowered = []
    while any(left.values()):
        state = State(graph, MESH)
        for node, factors in left.items():
            left[node] = split(state, node, factors, at_once)
        if any(state.factor_of):
            lowered.append(lower(state))
    return lowered


def split(state: State, node: Node, factors: list[int], at_once: int) -> list[int]:
    """The factors that are left when up to `at_once` are split, each along an axis.

    A factor that no axis can split, though no other factor of the op is, is given up.
    """
    left, taken = [], 0
    for factor in factors:
        axes = (a for a in MESH.axes if not why_not(state, node, a, factor))
        axis = next(axes, None) if taken < at_once else None
        if axis is not None:
            state.assign(node, axis, factor, Cause("tactic", "test"))
            taken += 1
        elif taken:
            left.append(factor)
    return left


def assert_same_numbers(example: Example, at_once: int):
    leaves = jax.tree_util.tree_leaves(example.args)
    wanted = jax.tree_util.tree_leaves(jax.jit(example.fn)(*example.args))
    for lowered in lowered_parts(captured(example).program, at_once):
        got = make_executable(lowered)(leaves)
        for w, g, path in zip(wanted, got, captured(example).out_paths, strict=True):
            error = compare(path, w, g)
            cuts = [str(s) for s in lowered.inputs]
            is_nan = np.isnan(error.error) and np.all(np.isnan(g))  # filled, as wanted
            assert error.ok or is_nan, f"{example.name} {cuts}: {error}"


EACH = pytest.mark.parametrize("example", all_examples(), ids=lambda e: e.name)


JOINED = 8  # examples that one program of the quick test computes


def joined(examples: Sequence[Example]) -> Example:
    """One example that computes all of these, each from its own arguments."""

    def all_of_them(*args: tuple[Any, ...]) -> list[Any]:
        return [e.fn(*own) for e, own in zip(examples, args, strict=True)]

    name = f"{examples[0].name} to {examples[-1].name}"
    return Example(name, all_of_them, tuple(e.args for e in examples))


@pytest.mark.parametrize(
    "example",
    [joined(group) for group in batched(all_examples(), JOINED)],
    ids=lambda e: e.name,
)
def test_splitting_two_factors_at_once_gives_the_same_numbers(example: Example):
    """One factor along each axis, of all ops of several examples at once.

    The slow test takes one factor of one example at a time, in many more programs.
    """
    assert_same_numbers(example, at_once=2)


def rolled() -> Program:
    """A rotation along a dim that is cut, in the form in which it is partitioned."""
    step = mw.partition(
        lambda u: jnp.roll(u, 1, 0), {"x": 2}, [mw.shard({"u": 0}, "x")]
    )
    decided = step.plan(jax.ShapeDtypeStruct((8, 4), "float32")).decided
    assert decided is not None
    return decided.work.graph.program


@pytest.mark.slow
@EACH
def test_splitting_any_factor_gives_the_same_numbers(example: Example):
    assert_same_numbers(example, at_once=1)


def test_every_known_op_is_reached_by_an_example():
    reached = set()
    for example in all_examples() + all_examples("TRACED"):
        reached |= {op.kind for op in captured(example).program.walk()}
    reached |= {op.kind for op in staged().staged.program.walk()}  # sends
    reached |= {op.kind for op in rolled().walk()}  # slices that are joined
    later = {kind for kind, since in catalogue.OPS_SINCE.items() if since > JAX}
    missing = sorted(set(known_ops("meshwright")) - reached - later)
    assert not missing, f"no example reaches {missing}"
