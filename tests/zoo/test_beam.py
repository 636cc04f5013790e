from functools import partial
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import meshwright as mw
from zoo.beam import Decoding, beam, greedy, penalty

VOCAB, LENGTH = 4, 4

END = 1

SEEDS = st.integers(0, 2**31 - 1)

ALPHAS = st.sampled_from([0.0, 0.6, 1.5])


def table(seed, batch=1, sharpness=2.0):
    """Scores [B, T, V, V] of a toy: of the next token, by position and last token."""
    shape = (batch, LENGTH, VOCAB, VOCAB)
    return sharpness * np.random.default_rng(seed).normal(size=shape)


def next_of(tokens, position, state):
    """The toy as a program; its state is the table, which every beginning carries."""
    scores = jnp.take(state, position, axis=1)
    return jnp.take_along_axis(scores, tokens[:, None, None], axis=1)[:, 0], state


@partial(jax.jit, static_argnums=1)
def search(scores, how):
    return beam(next_of, scores, len(scores), how)


@partial(jax.jit, static_argnums=1)
def best_each_time(scores, how):
    return greedy(next_of, scores, len(scores), how)


def log_softmax(x):
    return x - np.log(np.exp(x).sum(axis=-1, keepdims=True))


def all_results(scores, alpha):
    """(penalised log-probability, tokens) of every sequence, ended or of full length."""
    steps = log_softmax(scores)
    for tokens in product(range(VOCAB), repeat=LENGTH):
        last, total, length = 0, 0.0, 0
        for token in tokens:
            total += steps[length, last, token]
            last, length = token, length + 1
            if token == END:
                break
        if not any(tokens[length:]):  # pads after the end, in one way only
            yield total / ((5 + length) / 6) ** alpha, tokens


@settings(max_examples=25)
@given(SEEDS, ALPHAS)
def test_a_wide_beam_finds_the_best_of_all_sequences(seed, alpha):
    scores = table(seed)
    found = search(scores, Decoding(LENGTH, width=128, alpha=alpha))
    expected = sorted(all_results(scores[0], alpha), reverse=True)
    ranks = found.log_probability[0] / penalty(found.length[0], alpha)
    np.testing.assert_allclose(ranks[:8], [r for r, _ in expected[:8]], rtol=1e-4)
    assert tuple(found.tokens[0, 0].tolist()) == expected[0][1]


@settings(max_examples=25)
@given(SEEDS, ALPHAS)
def test_a_beam_of_one_is_greedy(seed, alpha):
    scores = table(seed, batch=5)
    found = search(scores, Decoding(LENGTH, width=1, alpha=alpha))
    expected = best_each_time(scores, Decoding(LENGTH))
    np.testing.assert_array_equal(found.tokens[:, 0], expected)


@settings(max_examples=25)
@given(SEEDS)
def test_each_of_a_batch_is_searched_for_itself(seed):
    scores, how = table(seed, batch=5), Decoding(LENGTH, width=3)
    together = search(scores, how)
    for i in range(5):
        alone = search(scores[i : i + 1], how)
        np.testing.assert_array_equal(together.tokens[i], alone.tokens[0])


@settings(max_examples=25)
@given(SEEDS)
def test_what_a_result_cost_is_the_probability_of_its_tokens(seed):
    scores = table(seed)
    found = search(scores, Decoding(LENGTH, width=3))
    known = {tokens: rank for rank, tokens in all_results(scores[0], 0.0)}
    for tokens, cost in zip(found.tokens[0], found.log_probability[0], strict=True):
        assert cost == pytest.approx(known[tuple(tokens.tolist())], rel=1e-4, abs=1e-5)


def trap():
    """Token 2 is likelier than 3 at first, but what follows 3 is certain."""
    scores = np.zeros((1, LENGTH, VOCAB, VOCAB))
    scores[0, 0, 0] = np.log([1e-4, 1e-4, 0.55, 0.45])
    scores[0, 1:, 3] = np.log([1e-4, 0.9997, 1e-4, 1e-4])
    return scores


def test_two_beginnings_avoid_the_trap_that_one_runs_into():
    one, two = (search(trap(), Decoding(LENGTH, width=w, alpha=0)) for w in (1, 2))
    assert one.tokens[0, 0, 0] == 2
    assert two.tokens[0, 0].tolist() == [3, END, 0, 0]
    assert two.log_probability[0, 0] == pytest.approx(np.log(0.45), abs=1e-2)
    assert two.length[0, 0] == 2


def test_results_come_best_first_and_differ():
    found = search(table(3, batch=6), Decoding(LENGTH, width=8))
    ranks = found.log_probability / penalty(found.length, 0.6)
    assert (np.diff(ranks) <= 0).all()
    for tokens in np.asarray(found.tokens):
        assert len(np.unique(tokens, axis=0)) == 8


def test_a_larger_alpha_prefers_longer_results():
    scores = table(0, batch=64)
    lengths = [
        search(scores, Decoding(LENGTH, width=16, alpha=alpha)).length[:, 0].mean()
        for alpha in (0.0, 1.0, 3.0)
    ]
    assert lengths[0] < lengths[1] < lengths[2]


def test_pads_follow_the_end():
    scores = table(1, batch=64)
    tokens = np.asarray(best_each_time(scores, Decoding(LENGTH, pad=0)))
    after = np.cumsum(tokens == END, axis=1) - (tokens == END)
    assert (after > 0).any()
    assert (tokens[after > 0] == 0).all()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"width": 0}, "length and width are at least 1, not 4 and 0"),
        ({"length": 0}, "length and width are at least 1, not 0 and 1"),
        ({"alpha": -1.0}, "alpha is a finite number of at least 0, not -1.0"),
    ],
)
def test_a_decoding_that_makes_no_sense_says_why(changes, words):
    with pytest.raises(ValueError, match=words):
        Decoding(**{"length": LENGTH, **changes})


def test_a_batch_that_is_cut_moves_in_each_iteration_only_whether_all_have_ended():
    def fn(scores):
        return beam(next_of, scores, 8, Decoding(LENGTH, width=3))

    step = mw.partition(fn, {"data": 8}, [mw.data_parallel("data", "scores")])
    scores = table(0, batch=8).astype(np.float32)
    counts = step.plan(scores).counts
    assert {kind: n for kind, n in counts.items() if n} == {"all_reduce": LENGTH}
    assert step.check(scores).ok
