"""The policy's network: graph convolutions, then three log probabilities for each op.

The convolutions are SAGE's (Hamilton et al., NeurIPS 2017) over the ops before and after
each op, as in the learned performance models. Letters in shapes: N ops, H width.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from meshwright.features.chips.policy_network.inputs import NUM_FEATURES, NUM_MOVES
from meshwright.learn.graphs import GraphArrays
from meshwright.learn.layers import Params, apply, dense, denses, sage_convolution

WIDTH = 32
NUM_LAYERS = 2


def init_policy(key: Any) -> Params:
    """Random parameters; the last layer is 0, so that the network returns the prior."""
    keys = iter(jax.random.split(key, 2 + 3 * NUM_LAYERS))
    layers = [
        denses(keys, ("itself", "above", "below"), WIDTH) for _ in range(NUM_LAYERS)
    ]
    head = dense(next(keys), WIDTH, NUM_MOVES)
    return {
        "node": dense(next(keys), NUM_FEATURES, WIDTH),
        "layers": layers,
        "head": jax.tree.map(jnp.zeros_like, head),
    }


def move_log_probabilities(params: Params, graph: GraphArrays, prior: Any) -> Any:
    """Log probabilities of the moves of each op [N, 3]."""
    x = jax.nn.gelu(apply(params["node"], graph.features))
    for layer in params["layers"]:
        x = x + sage_convolution(
            graph, x, layer["itself"], layer["above"], layer["below"]
        )
    logits = prior + _LARGEST * jnp.tanh(apply(params["head"], x) / _LARGEST)
    return jax.nn.log_softmax(logits, axis=-1)


_LARGEST = 2.0
"""The network changes the odds of a move by at most e^2."""
