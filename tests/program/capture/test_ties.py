"""Ties are found however a step's arguments and results are nested."""

import jax.numpy as jnp
import pytest

from meshwright.program.capture import capture

PARAMS = {"a": jnp.ones((4, 2)), "b": jnp.ones(2)}
MOMENTS = {"m": jnp.ones((4, 2))}
X = jnp.ones((3, 4))


def same(tree):
    return {k: v + 1 for k, v in tree.items()}


@pytest.mark.parametrize(
    ("fn", "args", "ties"),
    [
        (lambda p, x: (same(p), x.sum()), (PARAMS, X), {0: 0, 1: 1}),
        (lambda p, x: same(p), (PARAMS, X), {0: 0, 1: 1}),
        (
            lambda p, m, x: (x.sum(), (same(p), same(m))),
            (PARAMS, MOMENTS, X),
            {1: 0, 2: 1, 3: 2},
        ),
        (
            lambda s, x: (same(s[0]), same(s[1]), x.sum()),
            ((PARAMS, MOMENTS), X),
            {0: 0, 1: 1, 2: 2},
        ),
        (lambda p, x: (x.sum(), x.T), (PARAMS, X), {}),
        (lambda p, x: (x.sum(), x + 1), (PARAMS, X), {}),
    ],
    ids=["beside a loss", "alone", "in a pair", "from a pair", "none", "a bare array"],
)
def test_state_is_tied_to_the_next_call(fn, args, ties):
    assert capture(fn, args).ties == ties


def test_a_donated_array_is_tied():
    captured = capture(lambda c, x: (c + 1, x), (X, PARAMS["b"]), donated={"c"})
    assert captured.ties == {0: 0}


def test_two_outputs_are_never_tied_to_one_input():
    def fn(p):
        return same(p), same(p)

    assert capture(fn, (PARAMS,)).ties == {0: 0, 1: 1}
