"""Measures of a ranking against cases counted by hand, and against enumeration."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.learn.ranking import (
    Ranking,
    kendall_tau,
    noise_ceiling,
    ordered_pair_accuracy,
    top_error,
)

TIMES = np.array([4.0, 2.0, 8.0, 3.0, 2.5, 10.0])
SCORES = np.array([0.1, 0.5, 0.2, 0.3, 0.4, 0.9])


def test_top_errors_are_those_counted_by_hand():
    assert top_error(SCORES, TIMES, 1) == 1.0  # it takes 4.0, the best is 2.0
    assert top_error(SCORES, TIMES, 3) == 0.5  # 4.0, 8.0 and 3.0
    assert top_error(SCORES, TIMES, 4) == 0.25
    assert top_error(SCORES, TIMES, 5) == 0.0


def test_with_fewer_than_k_configurations_all_are_taken():
    assert top_error(SCORES[:2], TIMES[:2], 10) == 0.0


def test_ties_of_scores_keep_the_given_order():
    assert top_error(np.zeros(6), TIMES, 1) == 1.0
    assert top_error(np.zeros(6), TIMES[::-1], 1) == 4.0


def test_ordered_pairs_are_counted_by_hand():
    scores, times = np.array([1.0, 2.0, 2.0, 0.0]), np.array([1.0, 2.0, 3.0, 3.0])
    # slower-faster pairs: (1,0) right, (2,0) right, (3,0) wrong, (2,1) tied, (3,1) wrong
    assert ordered_pair_accuracy(scores, times) == 2 / 5
    assert ordered_pair_accuracy(scores, np.ones(4)) == 1


def tau_b(scores, times):
    """Kendall's tau-b by enumeration of all pairs."""
    agree = ties_s = ties_t = pairs = 0
    for i, j in itertools.combinations(range(len(scores)), 2):
        s, t = np.sign(scores[i] - scores[j]), np.sign(times[i] - times[j])
        agree, pairs = agree + s * t, pairs + 1
        ties_s, ties_t = ties_s + (s == 0), ties_t + (t == 0)
    scale = math.sqrt((pairs - ties_s) * (pairs - ties_t))
    return agree / scale if scale else 0.0


small = st.lists(st.integers(0, 5), min_size=2, max_size=8)


@given(small, st.randoms(use_true_random=False))
def test_tau_is_tau_b_of_all_pairs(numbers, random):
    scores, times = np.array(numbers, float), np.array(numbers, float)
    random.shuffle(times)
    assert kendall_tau(scores, times) == pytest.approx(tau_b(scores, times))


@given(st.permutations(range(7)))
def test_without_ties_opa_is_half_of_tau_plus_one(order):
    scores, times = np.array(order, float), np.arange(7.0)
    tau = kendall_tau(scores, times)
    assert ordered_pair_accuracy(scores, times) == pytest.approx((tau + 1) / 2)


def test_means_are_over_graphs():
    one = Ranking.of(SCORES, TIMES)
    other = Ranking.of(TIMES, TIMES)
    mean = Ranking.mean([one, other])
    assert mean.top_errors[1] == 0.5
    assert mean.tau == pytest.approx((one.tau + 1) / 2)
    assert mean.to_json()["top_1_error"] == 0.5
    assert "E_1 0.5000" in str(mean)


def test_the_noise_ceiling_is_the_mean_tau_between_passes():
    passes = [(1, 2, 3), (1, 2, 3), (3, 2, 1)]
    assert noise_ceiling(passes) == pytest.approx((1 - 1 - 1) / 3)
    assert math.isnan(noise_ceiling([(1, 2, 3)]))
