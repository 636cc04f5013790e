"""Losses against enumeration."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from meshwright.learn.losses import list_mle, pairwise_hinge


def test_list_mle_is_the_likelihood_of_drawing_the_true_order():
    scores, times = np.array([0.3, -1.0, 2.0, 0.5]), np.array([2.0, 1.0, 4.0, 3.0])
    merits = np.exp(-scores)
    order = [1, 0, 3, 2]
    expected = 1.0
    for place, item in enumerate(order):
        expected *= merits[item] / sum(merits[i] for i in order[place:])
    padded = np.append(scores, 9.0), np.append(times, 0.5), np.array([1, 1, 1, 1, 0.0])
    assert list_mle(*padded) == pytest.approx(-math.log(expected) / 4, rel=1e-5)
    likelihood = jax.jit(list_mle)
    drawn = sum(  # the likelihoods of all orders add up to 1
        math.exp(-4 * float(likelihood(scores, np.argsort(order), np.ones(4))))
        for order in itertools.permutations(range(4))
    )
    assert drawn == pytest.approx(1, rel=1e-4)


def test_the_hinge_is_the_mean_over_pairs_with_different_times():
    scores, times = [0.3, -1.0, 2.0, 0.5, 9.0], [2.0, 1.0, 2.0, 3.0, 0.5]
    shortfalls = [
        max(0.0, 1 - (scores[i] - scores[j]))
        for i, j in itertools.permutations(range(4), 2)
        if times[i] > times[j]
    ]
    mask = np.array([1, 1, 1, 1, 0.0])
    found = pairwise_hinge(jnp.array(scores), jnp.array(times), mask)
    assert found == pytest.approx(np.mean(shortfalls), rel=1e-6)
