"""Ties are found however a step's arguments and results are nested."""

import jax
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


def momentum(w, m, x):
    value, grads = jax.value_and_grad(lambda w: ((x @ w) ** 2).mean())(w)
    m = 0.9 * m + grads
    return w - 0.1 * m, m, value


def in_a_loop(w, xs):
    def update(w, x):
        return w - 0.1 * jax.grad(lambda w: ((x @ w) ** 2).mean())(w), None

    return jax.lax.scan(update, w, xs)[0]


def part_of_a_dict(p, x):
    grads = jax.grad(lambda a: ((x @ a) ** 2).mean())(p["a"])
    return {"new": p["a"] - 0.1 * grads}


W = jnp.ones((4, 4))


@pytest.mark.parametrize(
    ("fn", "args", "ties"),
    [
        (momentum, (W, W, W), {0: 0, 1: 1}),
        (in_a_loop, (W, jnp.ones((2, 3, 4))), {0: 0}),
        (part_of_a_dict, (PARAMS, X), {0: 0}),
        (lambda w, x: jax.grad(lambda w: ((x @ w) ** 2).mean())(w), (W, W), {}),
        (lambda w, x: x + jnp.tanh(x @ w), (W, W), {}),
    ],
    ids=["momentum", "in a loop", "part of a dict", "a gradient alone", "a residual"],
)
def test_what_a_gradient_updates_is_tied(fn, args, ties):
    assert capture(fn, args).ties == ties


def test_a_donated_array_is_tied():
    captured = capture(lambda c, x: (c + 1, x), (X, PARAMS["b"]), donated={"c"})
    assert captured.ties == {0: 0}


def test_two_outputs_are_never_tied_to_one_input():
    def fn(p):
        return same(p), same(p)

    assert capture(fn, (PARAMS,)).ties == {0: 0, 1: 1}
