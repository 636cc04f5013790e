"""Small programs and ways to cut them: all is planned, nothing runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
from hypothesis import strategies as st
from jax import lax

import meshwright as mw
from meshwright.partitioner.propagate import Graph, Node, Propagator, State
from meshwright.program.capture import capture

MESH = mw.Mesh({"a": 2, "b": 4})


def f32(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def mlp(w, v, x):
    def loss(w, v):
        return (jnp.tanh(x @ w) @ v).sum()

    dw, dv = jax.grad(loss, (0, 1))(w, v)
    return w - dw, v - dv


def scan(w, c, xs):
    def step(c, x):
        c = jnp.tanh(c @ w) + x
        return c, c.sum(axis=1)

    return lax.scan(step, c, xs)


def attention(w, x):
    def heads(y):
        return y.reshape(4, 8, 4, 4)

    q, k, v = (heads(x @ w[i]) for i in range(3))
    scores = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k))
    return jnp.einsum("bhqk,bkhd->bqhd", scores, v).reshape(4, 8, 16)


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "mlp": (mlp, (f32(8, 16), f32(16, 4), f32(16, 8))),
    "scan": (scan, (f32(8, 8), f32(4, 8), f32(3, 4, 8))),
    "attention": (attention, (f32(3, 16, 16), f32(4, 8, 16))),
}


@cache
def graph(name: str) -> Graph:
    fn, args = PROGRAMS[name]
    found = capture(fn, args)
    return Graph(found.program, found.ties)


def engine(
    fn: Callable[..., Any], *args: Any, mesh: Mapping[str, int] | None = None
) -> Propagator:
    """An engine over what `fn` is, with nothing cut yet."""
    found = capture(fn, args)
    return Propagator(State(Graph(found.program), mw.Mesh(mesh) if mesh else MESH))


def fresh(name: str) -> Propagator:
    return Propagator(State(graph(name), MESH))


def the(engine: Propagator, kind: str, which: int = 0) -> Node:
    """The node of an op, by its kind and which of that kind it is."""
    nodes = (n for n in engine.graph.op_node.values() if n.label == kind)
    return list(nodes)[which]


def made(node: Node) -> int:
    """The value that a node makes first."""
    return node.outs[0][0]


Step = tuple[str, int, str, int]
"""What to do ("cut" or "block"), to which node, along which axis, on which factor."""


def steps(max_size: int = 6) -> st.SearchStrategy[list[Step]]:
    """Decisions for any program: numbers wrap around."""
    what = st.sampled_from(["cut", "cut", "cut", "block"])
    number = st.integers(0, 999)
    one = st.tuples(what, number, st.sampled_from(MESH.axes), number)
    return st.lists(one, min_size=1, max_size=max_size)


def take(engine: Propagator, step: Step) -> str | None:
    """Take one decision; why not, if it was a cut that cannot be."""
    what, number, axis, factor = step
    nodes = [n for n in engine.graph.nodes if n.sizes]
    node = nodes[number % len(nodes)]
    if what == "cut":
        return engine.cut(node, axis, factor % len(node.sizes), f"cut {number}")
    if axis not in engine.state.factor_of[node.index]:
        engine.state.block(node, axis)
    return None


def take_all(engine: Propagator, decisions: Sequence[Step]) -> None:
    for step in decisions:
        take(engine, step)


def snapshot(state: State) -> dict[str, object]:
    """All that was decided, as a value of its own; that nothing cuts is not told."""
    return {
        "factor_of": [dict(f) for f in state.factor_of],
        "axes_of": [{f: axes for f, axes in a.items() if axes} for a in state.axes_of],
        "scattered": dict(state.scattered),
        "requests": {k: dict(w) for k, w in state.requests.items() if w},
        "causes": dict(state.causes),
        "conflicts": dict(state.conflicts),
        "blocked": list(state.blocked),
    }
