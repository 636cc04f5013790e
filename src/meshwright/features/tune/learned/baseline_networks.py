"""The structure of the two networks that TpuGraphs publishes as baselines.

EarlyJoinSAGE ranks tilings; ResModel, without its segments, ranks layouts. Both are in
google-research-datasets/tpu_graphs, commit ddd187c. Features are standardised as for our
own network, where the originals scale them to 0 .. 1. Letters in shapes: N nodes, C
configurations, F features, H width.
"""

from typing import Any

import jax
import jax.numpy as jnp

from meshwright.features.tune.learned.features import (
    MAX_RANK,
    NUM_LAYOUT_FEATURES,
    NUM_TILE_FEATURES,
)
from meshwright.features.tune.learned.graph_arrays import ProgramArrays
from meshwright.features.tune.learned.hlo.opcodes import NUM_OPCODES
from meshwright.features.tune.learned.network import NetworkConfig
from meshwright.learn.graphs import sum_of_receivers, sum_of_senders
from meshwright.learn.layers import Params, apply, dense

_SAGE_WIDTH, _SAGE_LAYERS, _SAGE_OPCODE_WIDTH = 64, 3, 64
_GCN_WIDTH, _GCN_LAYERS, _GCN_OPCODE_WIDTH = 32, 2, 32
_CONFIG_FACTOR = 100
"""ResModel multiplies configuration features by it before every layer."""


def init_early_join_sage(key: Any, config: NetworkConfig, num_features: int) -> Params:
    """Random parameters of EarlyJoinSAGE, for tilings."""
    del config  # the sizes are those of the original
    keys = iter(jax.random.split(key, 8))
    width = _SAGE_WIDTH
    inputs = num_features + MAX_RANK + _SAGE_OPCODE_WIDTH + NUM_TILE_FEATURES
    widths = [inputs, *[width] * (_SAGE_LAYERS - 1)]
    return {
        "opcode": 0.05
        * jax.random.normal(next(keys), (NUM_OPCODES, _SAGE_OPCODE_WIDTH)),
        "layers": [dense(next(keys), 2 * n, width) for n in widths],
        "hidden": [dense(next(keys), width, width) for _ in range(2)],
        "score": dense(next(keys), width, 1),
    }


def early_join_sage(
    params: Params, graph: ProgramArrays, configs: Any, mask: Any
) -> Any:
    """Scores [C] of configurations by EarlyJoinSAGE; a lower one means faster."""
    del mask
    nodes = _node_inputs(params, graph)
    x = _for_each_config(nodes, configs[None])
    for layer in params["layers"]:
        both = jnp.concatenate([_neighbour_sum(graph, x), x], axis=-1)
        x = _unit(jax.nn.leaky_relu(apply(layer, both)))
    x = (x * graph.graph.node_mask[:, None, None]).sum(axis=0)
    for hidden in params["hidden"]:
        x = jax.nn.leaky_relu(apply(hidden, x))
    return apply(params["score"], x)[:, 0]


def init_residual_gcn(key: Any, config: NetworkConfig, num_features: int) -> Params:
    """Random parameters of ResModel, for layouts."""
    del config  # the sizes are those of the original
    keys = iter(jax.random.split(key, 5 + 2 * _GCN_LAYERS))
    width, extra = _GCN_WIDTH, NUM_LAYOUT_FEATURES
    inputs = num_features + MAX_RANK + _GCN_OPCODE_WIDTH + extra

    def mlp(inputs: int) -> list[Params]:
        return [dense(next(keys), inputs, width), dense(next(keys), width, width)]

    return {
        "opcode": 0.05
        * jax.random.normal(next(keys), (NUM_OPCODES, _GCN_OPCODE_WIDTH)),
        "before": mlp(inputs),
        "layers": [mlp(width + extra) for _ in range(_GCN_LAYERS)],
        "hidden": dense(next(keys), 3 * width, width)["kernel"],
        "score": dense(next(keys), width, 1)["kernel"],
    }


def residual_gcn(params: Params, graph: ProgramArrays, configs: Any, mask: Any) -> Any:
    """Scores [C] of configurations by ResModel; a lower one means faster."""
    del mask
    nodes = _node_inputs(params, graph)
    choices = _CONFIG_FACTOR * configs.astype(nodes.dtype).swapaxes(0, 1)
    nothing = jnp.zeros((len(nodes), *choices.shape[1:]), nodes.dtype)
    choices = nothing.at[graph.config_nodes].set(choices, mode="drop")
    x = jax.nn.leaky_relu(_mlp(params["before"], _for_each_config(nodes, choices)))
    degrees = _neighbour_sum(graph, jnp.ones((len(nodes), 1, 1))) + 1
    for layer in params["layers"]:
        y = jnp.concatenate([choices, x], axis=-1) * jax.lax.rsqrt(degrees)
        y = (_neighbour_sum(graph, y) + y) * jax.lax.rsqrt(degrees)
        x = x + jax.nn.leaky_relu(_mlp(layer, y))
    x = x * graph.graph.node_mask[:, None, None]
    of_chosen = x.at[graph.config_nodes].get(mode="fill", fill_value=0).sum(axis=0)
    mean = x.sum(axis=0) / graph.graph.node_mask.sum()
    pooled = jnp.concatenate([mean, _unit(x.sum(axis=0)), _unit(of_chosen)], axis=-1)
    return (jax.nn.leaky_relu(pooled @ params["hidden"]) @ params["score"])[:, 0]


def _node_inputs(params: Params, graph: ProgramArrays) -> Any:
    layouts = graph.layouts / MAX_RANK
    return jnp.concatenate(
        [graph.graph.features, layouts, params["opcode"][graph.opcodes]], axis=-1
    )


def _for_each_config(nodes: Any, choices: Any) -> Any:
    """The features of nodes [N, F], repeated and joined with those of configurations.

    choices: features of the configurations, [N, C, K], or [1, C, K] for all nodes alike.
    The result is [N, C, F + K].
    """
    shape = (len(nodes), choices.shape[1])
    return jnp.concatenate(
        [
            jnp.broadcast_to(choices, (*shape, choices.shape[-1])),
            jnp.broadcast_to(nodes[:, None], (*shape, nodes.shape[-1])),
        ],
        axis=-1,
    )


def _neighbour_sum(graph: ProgramArrays, x: Any) -> Any:
    """Sums [N, C, H] of x [N, C, H] over the operands and users of each node."""
    return sum_of_senders(graph.graph, x) + sum_of_receivers(graph.graph, x)


def _mlp(layers: list[Params], x: Any) -> Any:
    return apply(layers[1], jax.nn.leaky_relu(apply(layers[0], x)))


def _unit(x: Any) -> Any:
    """x, scaled so that vectors along the last dim have length 1."""
    return x * jax.lax.rsqrt(jnp.maximum((x**2).sum(axis=-1, keepdims=True), 1e-12))
