"""Every rule against numbers: split each factor alone, run the parts, compare."""

from __future__ import annotations

import pkgutil
from importlib import import_module
from itertools import chain

import jax
import numpy as np
import pytest

from meshwright.app.check.check import compare
from meshwright.machine import Mesh
from meshwright.partitioner.lower import Lowered, lower
from meshwright.partitioner.propagate import Cause, Graph, State, why_not
from meshwright.program.capture import capture
from meshwright.program.ir import Program
from meshwright.program.ops import known_ops
from meshwright.run.local import make_executable
from tests.program.ops import catalogue
from tests.program.ops.catalogue import Example

JAX = jax.version.__version_info__
MESH = Mesh({"x": 4, "y": 2})


def all_examples(which: str = "EXAMPLES") -> list[Example]:
    names = sorted(m.name for m in pkgutil.iter_modules(catalogue.__path__))
    modules = (import_module(f"{catalogue.__name__}.{name}") for name in names)
    found = chain.from_iterable(getattr(m, which, ()) for m in modules)
    return [each for each in found if each.since <= JAX]


def lowered_parts(program: Program) -> list[Lowered]:
    """Device programs that together split each factor of each op, one factor per op.

    All ops are split at once, so that a program of ops with at most f factors takes f
    device programs.
    """
    graph = Graph(program)
    nodes = list(graph.op_node.values())
    rounds = max((len(node.sizes) for node in nodes), default=0)
    lowered = []
    for factor in range(rounds):
        state = State(graph, MESH)
        for node in nodes:
            if factor >= len(node.sizes):
                continue
            axis = next(
                (a for a in MESH.axes if not why_not(state, node, a, factor)), None
            )
            if axis is not None:
                state.assign(node, axis, factor, Cause("tactic", "test"))
        if any(state.factor_of):
            lowered.append(lower(state))
    return lowered


@pytest.mark.parametrize("example", all_examples(), ids=lambda e: e.name)
def test_splitting_any_factor_gives_the_same_numbers(example: Example):
    captured = capture(example.fn, example.args)
    leaves = jax.tree_util.tree_leaves(example.args)
    wanted = jax.tree_util.tree_leaves(jax.jit(example.fn)(*example.args))
    for lowered in lowered_parts(captured.program):
        got = make_executable(lowered)(leaves)
        for w, g, path in zip(wanted, got, captured.out_paths, strict=True):
            error = compare(path, w, g)
            cuts = [str(s) for s in lowered.inputs]
            is_nan = np.isnan(error.error) and np.all(np.isnan(g))  # filled, as wanted
            assert error.ok or is_nan, f"{example.name} {cuts}: {error}"


def test_every_known_op_is_reached_by_an_example():
    reached = set()
    for example in all_examples() + all_examples("TRACED"):
        reached |= {op.kind for op in capture(example.fn, example.args).program.walk()}
    later = {kind for kind, since in catalogue.OPS_SINCE.items() if since > JAX}
    missing = sorted(set(known_ops("meshwright")) - reached - later)
    assert not missing, f"no example reaches {missing}"
