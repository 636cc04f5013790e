import math
from itertools import permutations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zoo.listwise import LOSSES, approx_ranks, mrr, ndcg, ranks

ITEMS = 5
"""Of every list here, so that each function compiles once."""

METRICS = {"ndcg": ndcg, "mrr": mrr}

EACH = {**LOSSES, **METRICS}

JITTED = {name: jax.jit(fn) for name, fn in EACH.items()}

GRADIENTS = {name: jax.jit(jax.grad(fn)) for name, fn in LOSSES.items()}

FLOATS = st.floats(-8, 8, width=32)

GRADES = st.integers(0, 4).map(float)


def lists_of(element):
    return st.lists(element, min_size=ITEMS, max_size=ITEMS)


SCORES = lists_of(st.one_of(FLOATS, st.sampled_from([0.0, 1.0])))
"""With ties."""

APART = lists_of(st.integers(-40, 40)).filter(lambda x: len(set(x)) == len(x))
"""Without, and far enough for 32 bits."""

LABELS = lists_of(GRADES)

WHERE = lists_of(st.booleans())


# -- the same in plain Python, over the items that are there ---------------------------


def order(values):
    """Places from the highest value to the lowest; of equals the first is first."""
    return sorted(range(len(values)), key=lambda i: -values[i])


def softmax(scores):
    shares = [math.exp(s) for s in scores]
    return [share / sum(shares) for share in shares]


def plain_softmax(scores, labels):
    labels = labels if sum(labels) else [1.0] * len(labels)
    wanted = [y / sum(labels) for y in labels]
    return -sum(w * math.log(p) for w, p in zip(wanted, softmax(scores), strict=True))


def plain_pairwise_logistic(scores, labels):
    n = range(len(scores))
    terms = [
        math.log(1 + math.exp(scores[j] - scores[i]))
        for i in n
        for j in n
        if labels[i] > labels[j]
    ]
    return sum(terms) / max(len(terms), 1)


def plain_listmle(scores, labels):
    remaining = [scores[i] for i in order(labels)]
    return -sum(math.log(softmax(remaining[i:])[0]) for i in range(len(scores)))


def dcg(places, labels, top=math.inf):
    """places: of each item, counted from 1, fractions allowed."""
    return sum(
        (2**y - 1) / math.log2(1 + place)
        for place, y in zip(places, labels, strict=True)
        if place <= top
    )


def places_of(values):
    found = order(values)
    return [found.index(i) + 1 for i in range(len(values))]


def plain_ndcg(scores, labels, top=math.inf):
    best = dcg(places_of(labels), labels, top)
    return dcg(places_of(scores), labels, top) / best if best else 0.0


def plain_approx_ndcg(scores, labels):
    n = range(len(scores))
    places = [
        1 + sum(1 / (1 + math.exp(scores[i] - scores[j])) for j in n if j != i)
        for i in n
    ]
    best = dcg(places_of(labels), labels)
    return -dcg(places, labels) / best if best else 0.0


def plain_mrr(scores, labels, top=math.inf):
    for place, i in enumerate(order(scores), start=1):
        if labels[i] >= 1 and place <= top:
            return 1 / place
    return 0.0


PLAIN = {
    "softmax": plain_softmax,
    "pairwise_logistic": plain_pairwise_logistic,
    "listmle": plain_listmle,
    "approx_ndcg": plain_approx_ndcg,
    "ndcg": plain_ndcg,
    "mrr": plain_mrr,
}


def there(values, where):
    return [value for value, kept in zip(values, where, strict=True) if kept]


def found(name, scores, labels, where):
    arrays = (jnp.array(x, jnp.float32) for x in (scores, labels))
    return float(JITTED[name](*arrays, where=jnp.array(where)))


@pytest.mark.parametrize("name", EACH)
@settings(max_examples=60)
@given(SCORES, LABELS, WHERE)
def test_it_is_its_closed_form_on_the_items_that_are_there(name, scores, labels, where):
    expected = PLAIN[name](there(scores, where), there(labels, where))
    assert found(name, scores, labels, where) == pytest.approx(
        expected, rel=1e-4, abs=1e-4
    )


@pytest.mark.parametrize("name", EACH)
@given(APART, st.permutations([0.0, 1.0, 2.0, 3.0, 4.0]), WHERE, st.randoms())
def test_the_order_in_which_items_lie_is_no_matter(name, scores, labels, where, random):
    scores = [s / 8 for s in scores]
    items = list(zip(scores, labels, where, strict=True))
    before = found(name, *zip(*items, strict=True))
    random.shuffle(items)
    after = found(name, *zip(*items, strict=True))
    assert after == pytest.approx(before, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("name", EACH)
@pytest.mark.parametrize("filler", [7.0, math.nan, math.inf, -math.inf])
def test_what_padding_holds_changes_nothing(name, filler):
    scores, labels = [0.3, -1.0, 0.7, filler, filler], [0.0, 2.0, 1.0, filler, filler]
    where = [True, True, True, False, False]
    expected = PLAIN[name](scores[:3], labels[:3])
    assert found(name, scores, labels, where) == pytest.approx(expected, rel=1e-5)
    if name in LOSSES:
        arrays = (jnp.array(x, jnp.float32) for x in (scores, labels))
        gradient = GRADIENTS[name](*arrays, where=jnp.array(where))
        assert np.isfinite(gradient).all()
        assert np.any(gradient[:3] != 0)
        assert not np.any(gradient[3:])


@pytest.mark.parametrize("name", LOSSES)
@settings(max_examples=40)
@given(SCORES, LABELS, WHERE, st.sampled_from([1.0, 100.0]))
def test_gradients_are_finite_and_padding_has_none(name, scores, labels, where, scale):
    where = np.array(where)
    gradient = GRADIENTS[name](
        scale * jnp.array(scores), jnp.array(labels), where=jnp.array(where)
    )
    assert np.isfinite(gradient).all()
    assert not np.any(gradient[~where])


@pytest.mark.parametrize("name", LOSSES)
def test_a_step_down_the_gradient_raises_the_better_item(name):
    labels = jnp.array([0.0, 0.0, 3.0, 1.0, 0.0])
    gradient = GRADIENTS[name](jnp.zeros(ITEMS), labels)
    assert np.argmin(gradient) == 2
    assert gradient[2] < 0


@pytest.mark.parametrize("name", EACH)
def test_a_list_of_which_nothing_counts_is_zero(name):
    nothing = [False] * ITEMS
    assert found(name, [1.0] * ITEMS, [2.0] * ITEMS, nothing) == 0


@pytest.mark.parametrize("name", EACH)
def test_lists_of_a_batch_are_reduced_as_asked(name):
    rng = np.random.default_rng(0)
    scores, labels = rng.normal(size=(3, 2, ITEMS)), rng.integers(0, 5, (3, 2, ITEMS))
    where = rng.random((3, 2, ITEMS)) < 0.8
    fn = EACH[name]
    apart = fn(scores, labels, where=where, reduce_fn=None)
    assert apart.shape[:2] == (3, 2)
    total = fn(scores, labels, where=where, reduce_fn=jnp.sum)
    assert total == pytest.approx(float(apart.sum()), rel=1e-5)
    if name != "pairwise_logistic":  # which reduces pairs, not lists
        assert fn(scores, labels, where=where) == pytest.approx(
            float(apart.mean()), rel=1e-5
        )
        for index in np.ndindex(3, 2):
            parts = (
                there(scores[index], where[index]),
                there(labels[index], where[index]),
            )
            assert apart[index] == pytest.approx(PLAIN[name](*parts), rel=1e-4)


@pytest.mark.parametrize("name", METRICS)
def test_a_mean_of_metrics_passes_empty_lists_over(name):
    scores, labels = np.zeros((2, ITEMS)), np.ones((2, ITEMS))
    where = np.array([[True] * ITEMS, [False] * ITEMS])
    assert METRICS[name](scores, labels, where=where) == pytest.approx(1.0)


# -- ranks, ties, cuts -------------------------------------------------------------


def test_of_equal_scores_the_first_is_first():
    np.testing.assert_array_equal(ranks(jnp.array([1.0, 3, 1, 3, 0])), [3, 1, 4, 2, 5])


@given(SCORES)
def test_ranks_are_those_of_a_sort(scores):
    expected = places_of(list(np.float32(scores)))
    np.testing.assert_array_equal(ranks(jnp.array(scores, jnp.float32)), expected)


def test_items_that_tie_share_their_approximate_rank():
    np.testing.assert_allclose(approx_ranks(jnp.zeros(5)), 3.0)


@given(APART)
def test_approximate_ranks_become_ranks_as_the_temperature_falls(scores):
    scores = jnp.array(scores, jnp.float32)
    np.testing.assert_allclose(
        approx_ranks(scores, temperature=0.01), ranks(scores), atol=1e-4
    )


@settings(max_examples=20)
@given(APART, LABELS)
def test_approximate_ndcg_becomes_ndcg_as_the_temperature_falls(scores, labels):
    scores, labels = jnp.array(scores, jnp.float32), jnp.array(labels, jnp.float32)
    loss = LOSSES["approx_ndcg"](scores, labels, temperature=0.01)
    assert -loss == pytest.approx(float(ndcg(scores, labels)), abs=1e-4)


@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize("top", [1, 2, 3, ITEMS, ITEMS + 2])
def test_ranks_after_the_top_do_not_count(name, top):
    plain = {"ndcg": plain_ndcg, "mrr": plain_mrr}[name]
    rng = np.random.default_rng(top)
    for _ in range(10):
        scores, labels = rng.normal(size=ITEMS), rng.integers(0, 3, ITEMS) * 1.0
        value = METRICS[name](jnp.array(scores), jnp.array(labels), top=top)
        expected = plain(list(scores), list(labels), top)
        assert value == pytest.approx(expected, rel=1e-5)


def test_no_order_has_a_higher_ndcg_than_that_of_the_labels():
    labels = jnp.array([0.0, 2.0, 4.0, 1.0, 2.0])
    orders = jnp.array(list(permutations(range(ITEMS))), jnp.float32)
    values = ndcg(orders, jnp.broadcast_to(labels, orders.shape), reduce_fn=None)
    assert values.max() == pytest.approx(1.0)
    assert ndcg(labels, labels) == pytest.approx(1.0)
    assert values.min() == ndcg(-labels, labels)


def test_listmle_is_a_probability_over_all_orders():
    """With labels that name an order, exp(-loss) of all orders sums to one."""
    scores = jnp.array([0.3, -1.2, 2.0, 0.0, 0.4])
    orders = jnp.array(list(permutations(range(ITEMS))), jnp.float32)
    losses = LOSSES["listmle"](
        jnp.broadcast_to(scores, orders.shape), orders, reduce_fn=None
    )
    assert jnp.exp(-losses).sum() == pytest.approx(1.0, rel=1e-5)
