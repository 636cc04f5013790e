"""Losses that train a model to rank configurations from fast to slow."""

from collections.abc import Callable
from enum import Enum
from typing import Any

import jax
import jax.numpy as jnp


class Loss(Enum):
    """The names of the losses that training can minimise."""

    LIST_MLE = "listmle"
    HINGE = "hinge"


def list_mle(scores: Any, times: Any, mask: Any) -> Any:
    """ListMLE: minus the log likelihood of the true order, per configuration.

    In this model configurations are drawn one after the other; the next one is drawn with a
    probability proportional to exp(-score) (Xia et al., ICML 2008). All arguments are [C];
    mask is 0 for padding.
    """
    order = jnp.argsort(jnp.where(mask > 0, times, jnp.inf))
    merits = jnp.where(mask > 0, -scores, -1e30)[order]
    rest = jax.lax.cumlogsumexp(merits, reverse=True)
    terms = jnp.where(mask[order] > 0, rest - merits, 0.0)
    return terms.sum() / jnp.maximum(mask.sum(), 1)


def pairwise_hinge(scores: Any, times: Any, mask: Any, margin: float = 1.0) -> Any:
    """The mean of max(0, margin - (slower's score - faster's score)) over pairs.

    Pairs are configurations with different times.
    """
    pairs = (times[:, None] > times[None, :]) & (mask[:, None] * mask[None, :] > 0)
    shortfall = jax.nn.relu(margin - (scores[:, None] - scores[None, :]))
    return jnp.where(pairs, shortfall, 0.0).sum() / jnp.maximum(pairs.sum(), 1)


LOSSES: dict[Loss, Callable[[Any, Any, Any], Any]] = {
    Loss.LIST_MLE: list_mle,
    Loss.HINGE: pairwise_hinge,
}
