"""Zero-cost proxies: figures of an untrained model that may tell how accurate it becomes.

Each is a function from a model and a few inputs to a number; larger promises more. A
search prints how well each ranked what it trained, so that one that does not earn its
place is visible. Letters in shapes: B examples.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from meshwright.features.codesign.nas.searching.model import BuiltModel, num_parameters
from meshwright.learn.ranking import kendall_tau
from meshwright.search.trials import Trial

_KEY = 0
"""Seed of the untrained parameters."""


def parameters(model: BuiltModel, inputs: Any) -> float:
    """The number of parameters."""
    params, _ = jax.eval_shape(model.init, jax.random.key(_KEY), inputs[:1])
    return float(num_parameters(params))


def synflow(model: BuiltModel, inputs: Any) -> float:
    """Synaptic flow (Tanaka et al., NeurIPS 2020), as a logarithm.

    The sum over parameters of |p dR/dp|, where R sums the outputs of a model with the
    absolute values of its parameters, for an input of ones.
    """
    params, state = model.init(jax.random.key(_KEY), inputs[:1])
    params = jax.tree.map(jnp.abs, params)
    ones = jnp.ones_like(inputs[:1])

    def flow(params: Any) -> Any:
        return model.apply(params, state, ones, None)[0].sum()

    grads = jax.jit(jax.grad(flow))(params)
    products = jax.tree.map(lambda p, g: jnp.abs(p * g).sum(), params, grads)
    return float(jnp.log(sum(jax.tree.leaves(products)) + 1e-30))


def naswot(model: BuiltModel, inputs: Any) -> float:
    """A measure of how differently examples activate the model (Mellor et al., ICML 2021).

    The logarithm of the determinant of the kernel of agreeing signs between examples. The
    signs are those of the outputs' gradients by the input, which the active units decide.
    """
    params, state = model.init(jax.random.key(_KEY), inputs[:1])

    def total(x: Any) -> Any:
        return model.apply(params, state, x[None], None)[0].sum()

    grads = np.asarray(jax.jit(jax.vmap(jax.grad(total)))(inputs))
    signs = np.sign(grads.reshape(len(inputs), -1))
    kernel = signs @ signs.T / max(signs.shape[1], 1)
    return float(np.linalg.slogdet(kernel + 1e-3 * np.eye(len(kernel)))[1])


PROXIES: Mapping[str, Callable[[BuiltModel, Any], float]] = {
    "parameters": parameters,
    "synflow": synflow,
    "naswot": naswot,
}


def rank_correlations(
    trials: Sequence[Trial], objective: str, names: Sequence[str]
) -> dict[str, float]:
    """Kendall's tau of each figure with an objective, over the trials that have both."""
    found: dict[str, float] = {}
    for name in names:
        pairs = [
            (trial.values[name], trial.values[objective])
            for trial in trials
            if trial.fidelity == 1 and not trial.reason and name in trial.values
        ]
        if len(pairs) > 2:
            one, other = np.array(pairs, np.float64).T
            found[name] = kendall_tau(one, other)
    return found
