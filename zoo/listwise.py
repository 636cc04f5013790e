"""Learning to rank: listwise losses and metrics, as Rax has them.

R. Jagerman, X. Wang, H. Zhuang, Z. Qin, M. Bendersky, M. Najork, "Rax: Composable
Learning-to-Rank Using JAX", KDD 2022. Losses and metrics are functions of `scores` and
`labels` [..., L], of higher relevance the better; `where` [..., L] tells which items
there are, `reduce_fn` reduces what remains of the dims before L (for pairs, of all
pairs), None not at all. What is masked has no gradient, and its values do not matter,
even if they are not finite. A list of which nothing counts has the loss and metric 0,
and a mean over lists passes it over for metrics, as in Rax.

Ranks come from comparing all pairs: a dim that is sorted is never cut, and pairs are.

Letters: L items of a list.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array

Reduce = Callable[..., Array] | None
"""`jnp.sum`, `jnp.mean` or another function of values and `where`; None for none."""


# -- pieces --------------------------------------------------------------------------


def _masks(labels: Array, where: Array | None) -> tuple[Array, Array]:
    """`where` [..., L], all if None; and both items of a pair are there [..., L, L]."""
    where = jnp.ones(labels.shape, bool) if where is None else where
    return where, where[..., :, None] & where[..., None, :]


def _known(values: Array, where: Array) -> Array:
    """`values` with 0 at masked items, since a NaN times 0 is NaN."""
    return jnp.where(where, values, 0.0)


def _reduce(values: Array, where: Array, reduce_fn: Reduce) -> Array:
    """`values` reduced over where they count; 0 if they count nowhere."""
    values = _known(values, where)
    if reduce_fn is None:
        return values
    nowhere = ~jnp.any(where)  # then all values are 0, and their mean has a gradient
    return reduce_fn(values, where=where | nowhere)


def _is_before(values: Array, pairs: Array) -> Array:
    """Whether item j ranks before i [..., i, j]: by value, then by position."""
    i, j = values[..., :, None], values[..., None, :]
    place = jnp.arange(values.shape[-1])
    return ((j > i) | ((j == i) & (place < place[:, None]))) & pairs


def ranks(scores: Array, where: Array | None = None) -> Array:
    """1 for the highest score, and so on; of equal scores the first is first."""
    where, pairs = _masks(scores, where)
    return 1.0 + jnp.sum(_is_before(_known(scores, where), pairs), axis=-1)


def approx_ranks(
    scores: Array, where: Array | None = None, temperature: float = 1.0
) -> Array:
    """Ranks with a gradient: each other item counts by a sigmoid of how far it is ahead.

    T. Qin, T. Liu, H. Li, Information Retrieval 13(4), 2010. As the temperature falls,
    ranks of scores that differ come out.
    """
    where, pairs = _masks(scores, where)
    scores = _known(scores, where)
    ahead = scores[..., None, :] - scores[..., :, None]
    others = pairs & ~jnp.eye(scores.shape[-1], dtype=bool)
    return 1.0 + jnp.sum(jax.nn.sigmoid(ahead / temperature), axis=-1, where=others)


# -- losses --------------------------------------------------------------------------


def softmax_loss(
    scores: Array,
    labels: Array,
    *,
    where: Array | None = None,
    reduce_fn: Reduce = jnp.mean,
) -> Array:
    """Cross-entropy between labels, scaled to sum 1, and the softmax of the scores.

    Where all labels are 0, every item that is there is as good.
    """
    where, _ = _masks(scores, where)
    labels, scores = _known(labels, where), jnp.where(where, scores, -1e30)
    total = jnp.sum(labels, axis=-1, keepdims=True)
    count = jnp.sum(where, axis=-1, keepdims=True)
    even = where / jnp.maximum(count, 1)
    wanted = jnp.where(total > 0, labels / jnp.where(total > 0, total, 1.0), even)
    told = jax.nn.log_softmax(scores, axis=-1)
    loss = -jnp.sum(wanted * told, axis=-1, where=where)
    return _reduce(loss, jnp.ones(loss.shape, bool), reduce_fn)


def pairwise_logistic_loss(
    scores: Array,
    labels: Array,
    *,
    where: Array | None = None,
    reduce_fn: Reduce = jnp.mean,
) -> Array:
    """log(1 + exp(s_j - s_i)) over all pairs with label i above label j [..., i, j].

    C. Burges et al., "Learning to Rank using Gradient Descent", ICML 2005.
    """
    where, pairs = _masks(scores, where)
    scores = _known(scores, where)
    margins = scores[..., :, None] - scores[..., None, :]
    better = (labels[..., :, None] > labels[..., None, :]) & pairs
    return _reduce(jax.nn.softplus(-margins), better, reduce_fn)


def listmle_loss(
    scores: Array,
    labels: Array,
    *,
    where: Array | None = None,
    reduce_fn: Reduce = jnp.mean,
) -> Array:
    """-log of the probability that items are drawn in the order of their labels.

    Each is drawn by softmax from the remaining ones; equal labels in order of position.
    F. Xia et al., ICML 2008.
    """
    where, pairs = _masks(scores, where)
    labels, scores = _known(labels, where), _known(scores, where)
    remains = pairs & ~_is_before(labels, pairs)
    left = jnp.where(remains, scores[..., None, :], -1e30)
    terms = jax.nn.logsumexp(left, axis=-1) - scores
    loss = jnp.sum(terms, axis=-1, where=where)
    return _reduce(loss, jnp.ones(loss.shape, bool), reduce_fn)


def approx_ndcg_loss(
    scores: Array,
    labels: Array,
    *,
    where: Array | None = None,
    reduce_fn: Reduce = jnp.mean,
    temperature: float = 1.0,
) -> Array:
    """-NDCG with approximate ranks (Qin, Liu and Li, 2010; Bruch et al., SIGIR 2019)."""
    found = approx_ranks(scores, where, temperature)
    return -_ndcg(found, labels, where, None, reduce_fn)


# -- metrics -------------------------------------------------------------------------


def ndcg(
    scores: Array,
    labels: Array,
    *,
    where: Array | None = None,
    top: int | None = None,
    reduce_fn: Reduce = jnp.mean,
) -> Array:
    """Gain 2^label - 1 by log2(1 + rank), summed, over that of the best order.

    top: the last rank that counts. K. Järvelin, J. Kekäläinen, ACM TOIS 20(4), 2002.
    """
    return _ndcg(ranks(scores, where), labels, where, top, reduce_fn)


def _ndcg(
    found: Array, labels: Array, where: Array | None, top: int | None, reduce_fn: Reduce
) -> Array:
    mask, _ = _masks(labels, where)
    gains = _known(jnp.exp2(_known(labels, mask)) - 1.0, mask)

    def gathered(order: Array) -> Array:
        counts = mask if top is None else mask & (order <= top)
        return jnp.sum(gains / jnp.log2(1.0 + order), axis=-1, where=counts)

    best = gathered(ranks(labels, where))
    values = gathered(found) / jnp.where(best > 0, best, 1.0)
    return _reduce(values, jnp.any(mask, axis=-1), reduce_fn)


def mrr(
    scores: Array,
    labels: Array,
    *,
    where: Array | None = None,
    top: int | None = None,
    reduce_fn: Reduce = jnp.mean,
) -> Array:
    """1 / rank of the best item whose label is at least 1; 0 if there is none.

    top: the last rank that counts.
    """
    mask, _ = _masks(labels, where)
    order = ranks(scores, where)
    hits = mask & (labels >= 1) & (order <= (scores.shape[-1] if top is None else top))
    values = jnp.max(1.0 / order, axis=-1, where=hits, initial=0.0)
    return _reduce(values, jnp.any(mask, axis=-1), reduce_fn)


LOSSES: dict[str, Callable[..., Array]] = {
    "softmax": softmax_loss,
    "pairwise_logistic": pairwise_logistic_loss,
    "listmle": listmle_loss,
    "approx_ndcg": approx_ndcg_loss,
}
