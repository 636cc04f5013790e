"""Graphs of captured programs: layers, masks, weights, loops."""

import jax
import jax.numpy as jnp
import pytest

from meshwright.features.chips.graph.program_graph import program_graph
from meshwright.features.chips.graph.skip_edges import skips_of
from meshwright.machine import load_machine
from meshwright.program.capture import capture

MACHINE = load_machine("mcm-4")


def graph_of(fn, *args, weights=(0,)):
    return program_graph(capture(fn, args).program, MACHINE, set(weights))


def kinds(graph):
    return [name.split(" ")[0] for name in graph.names]


def looped(weights, x):
    return jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, weights)[0]


def written_out(weights, x):
    for i in range(len(weights)):
        x = jnp.tanh(x @ weights[i])
    return x


def test_a_loop_over_layers_is_the_graph_of_the_layers_written_out():
    args = jnp.ones((3, 64, 64)), jnp.ones((8, 64))
    loop, plain = graph_of(looped, *args), graph_of(written_out, *args)
    assert kinds(loop) == kinds(plain) == ["dot_general", "tanh"] * 3
    assert loop.edges.tolist() == plain.edges.tolist()
    read = loop.weight_bytes[loop.weight_reads[:, 0]].tolist()
    assert read == [
        8 * 64 * 4,
        *[64 * 64 * 4] * 3,
    ]  # the input, then each layer's weights
    assert loop.value_bytes.tolist() == [8 * 64 * 4] * 6


def test_the_seconds_of_a_loop_are_those_of_all_its_iterations():
    args = jnp.ones((3, 64, 64)), jnp.ones((8, 64))
    apart = graph_of(looped, *args)
    whole = graph_of(looped, *args, weights=())
    assert kinds(whole) == ["scan"]
    assert whole.seconds.sum() == pytest.approx(apart.seconds.sum())


def test_a_remat_region_and_the_results_that_a_loop_stacks_are_followed():
    def fn(weights, x):
        def layer(x, w):
            y = jax.checkpoint(lambda x, w: jnp.tanh(x @ w))(x, w)
            return y, y.sum()

        x, sums = jax.lax.scan(layer, x, weights)
        return x, sums * 2

    graph = graph_of(fn, jnp.ones((2, 64, 64)), jnp.ones((8, 64)))
    assert kinds(graph) == ["dot_general", "tanh", "reduce_sum"] * 2 + ["stack", "mul"]
    stack = kinds(graph).index("stack")
    assert [u for u, v in graph.edges.tolist() if v == stack] == [2, 5]


def test_a_mask_of_all_layers_is_copied_to_each_reader():
    def fn(weights, x, lengths):
        mask = jnp.arange(256) < lengths[:, None]
        for w in weights:
            x = jnp.where(mask[..., None], jnp.tanh(x @ w), 0.0)
        return x

    args = [jnp.ones((256, 256))] * 3, jnp.ones((8, 256, 256)), jnp.ones(8, jnp.int32)
    graph = graph_of(fn, *args, weights=(0, 1, 2))
    assert "lt" not in kinds(graph)
    assert not len(skips_of(graph).ends)
    copied = graph.weight_bytes[graph.weight_reads[:, 0]]
    assert (copied == 8 * 256).sum() > 0 or (copied == 8 * 256 * 256).sum() > 0


def test_what_depends_on_weights_alone_is_made_once_and_stays():
    def fn(weights, x):
        return x @ weights.T.astype(jnp.bfloat16)

    graph = graph_of(fn, jnp.ones((64, 32)), jnp.ones((8, 32), jnp.bfloat16))
    assert kinds(graph) == ["dot_general"]
    read = graph.weight_bytes[graph.weight_reads[:, 0]].tolist()
    assert read == [8 * 32 * 2, 64 * 32 * 2]  # the input, and the converted weights


def test_a_loop_without_layers_and_a_branch_are_one_op_each():
    def fn(weights, x):
        x = jax.lax.fori_loop(0, 5, lambda _, x: jnp.tanh(x @ weights), x)
        return jax.lax.cond(x.sum() > 0, jnp.sin, jnp.cos, x)

    graph = graph_of(fn, jnp.ones((64, 64)), jnp.ones((8, 64)))
    assert kinds(graph)[0] in ("scan", "while")
    assert kinds(graph)[-1] == "cond"
