"""The graph network that scores configurations, as plain functions over JAX arrays.

SAGE convolutions in both directions (Hamilton et al., NeurIPS 2017), with attention over
the configurations of a graph. The score of a configuration is a sum of one number per
node, as in TGraph (Khizbullin et al., Frontiers in AI, 2025). Letters in shapes: N nodes,
C configurations, K configurable nodes, H width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from meshwright.errors import LearnedError
from meshwright.features.tune.learned.features import (
    MAX_RANK,
    NUM_LAYOUT_FEATURES,
    NUM_TILE_FEATURES,
)
from meshwright.features.tune.learned.graph_arrays import Lesson, ProgramArrays
from meshwright.features.tune.learned.hlo.opcodes import NUM_OPCODES
from meshwright.features.tune.learned.measured_graph import Collection
from meshwright.learn.layers import (
    Params,
    apply,
    dense,
    denses,
    normalize,
    sage_convolution,
)

_LAYOUT_SYMBOLS = MAX_RANK + 2
"""-1 to 5, and one for the dims of higher ranks."""


@dataclass(frozen=True, slots=True)
class NetworkConfig:
    """The sizes of a network, and the lessons of Kaggle's contest that it applies."""

    collection: Collection
    lessons: frozenset[Lesson] = frozenset(Lesson)
    width: int = 64
    num_layers: int = 3
    opcode_width: int = 16
    layout_width: int = 4

    def __post_init__(self) -> None:
        if min(self.width, self.num_layers, self.opcode_width, self.layout_width) < 1:
            raise LearnedError(f"{self}: every size must be at least 1")


def init_params(key: Any, config: NetworkConfig, num_features: int) -> Params:
    """Random parameters of our network, for graphs with `num_features` per node."""
    width, keys = config.width, iter(jax.random.split(key, 8 + 4 * config.num_layers))
    is_early = Lesson.EARLY_JOIN in config.lessons
    has_cross = is_early and Lesson.CROSS_CONFIG in config.lessons
    node_inputs = num_features + config.opcode_width + MAX_RANK * config.layout_width
    if config.collection is Collection.TILE:
        config_inputs = NUM_TILE_FEATURES
    else:
        config_inputs = NUM_LAYOUT_FEATURES * config.layout_width
    layers: list[Params] = []
    for _ in range(config.num_layers):
        layer = denses(keys, ("itself", "operands", "users"), width)
        cross_key = next(keys)
        if has_cross:
            layer["cross"] = dense(cross_key, 2 * width, width)
            layer["temperature"] = jnp.array(0.5)
        layers.append(layer)
    return {
        "opcode": 0.1
        * jax.random.normal(next(keys), (NUM_OPCODES, config.opcode_width)),
        "layout": jax.random.normal(next(keys), (_LAYOUT_SYMBOLS, config.layout_width)),
        "node": dense(next(keys), node_inputs, width),
        "config": dense(next(keys), config_inputs, width),
        "layers": layers,
        "head": {
            "hidden": dense(next(keys), width if is_early else 2 * width, width),
            "score": dense(next(keys), width, 1),
        },
    }


def graph_scores(params: Params, graph: ProgramArrays, configs: Any, mask: Any) -> Any:
    """Scores of configurations [C]; a lower one means faster.

    configs: [C, 24] tilings or [C, K, 18] layouts. mask: [C], 0 for padding.
    """
    vectors = node_vectors(params, graph, configs, mask)
    return head_scores(params, graph, *vectors).sum(axis=0)


def node_vectors(
    params: Params, graph: ProgramArrays, configs: Any, mask: Any
) -> tuple[Any, Any]:
    """The network's vectors before its last layers: of nodes, and of configurations.

    The first are [N, C, H], or [N, 1, H] if configurations are joined late. The second are
    [N, C, H].
    """
    symbols = jnp.clip(graph.layouts, -1, MAX_RANK) + 1
    layouts = params["layout"][symbols].reshape(len(graph.layouts), -1)
    opcodes = params["opcode"][graph.opcodes]
    inputs = jnp.concatenate([graph.graph.features, opcodes, layouts], axis=-1)
    choices = _config_vectors(params, graph, configs)
    x = apply(params["node"], inputs)[:, None]
    if params["head"]["hidden"]["kernel"].shape[0] == x.shape[-1]:  # early join
        x = x + choices
    for layer in params["layers"]:
        x = x + _convolve(layer, graph, normalize(x), mask)
    return normalize(x), choices


def head_scores(params: Params, graph: ProgramArrays, x: Any, choices: Any) -> Any:
    """The addends of the scores [N, C], from vectors of nodes and configurations."""
    hidden = params["head"]["hidden"]
    if hidden["kernel"].shape[0] != x.shape[-1]:  # late join
        x = jnp.concatenate([jnp.broadcast_to(x, choices.shape), choices], axis=-1)
    scores = apply(params["head"]["score"], jax.nn.gelu(apply(hidden, x)))[..., 0]
    return scores * graph.graph.node_mask[:, None]


def _config_vectors(params: Params, graph: ProgramArrays, configs: Any) -> Any:
    """The vector of each configuration at each node [N, C, H]; 0 without a choice."""
    num_nodes = len(graph.opcodes)
    if configs.ndim == 2:
        one = apply(params["config"], configs)
        return jnp.broadcast_to(one, (num_nodes, *one.shape))
    symbols = jnp.clip(configs, -1, MAX_RANK) + 1
    embedded = params["layout"][symbols].reshape(*configs.shape[:2], -1)
    choices = apply(params["config"], embedded).swapaxes(0, 1)
    nothing = jnp.zeros((num_nodes, *choices.shape[1:]), choices.dtype)
    return nothing.at[graph.config_nodes].set(choices, mode="drop")


def _convolve(layer: Params, graph: ProgramArrays, x: Any, mask: Any) -> Any:
    """Vectors [N, C, H] after one graph convolution over operands and users."""
    y = sage_convolution(
        graph.graph, x, layer["itself"], layer["operands"], layer["users"]
    )
    if "cross" not in layer:
        return y
    logits = jnp.where(mask[:, None] > 0, y / layer["temperature"], -jnp.inf)
    shares = jax.nn.softmax(logits, axis=1) * mask.sum()  # 1 if all are equal
    return apply(layer["cross"], jnp.concatenate([y, y * shares], axis=-1))
