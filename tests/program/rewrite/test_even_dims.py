"""Law: a program rewritten to windows of even dims computes what it did."""

from random import Random

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from meshwright.program.capture import capture
from meshwright.program.rewrite.even_dims import EvenDims
from meshwright.run.local.execute import run_program

X = np.random.default_rng(0).standard_normal((16, 8)).astype("float32")


def rewritten(fn, parts: int):
    """The program of `fn`, and the same with all its moves as windows."""
    program = capture(fn, (jax.ShapeDtypeStruct(X.shape, "float32"),)).program
    every = tuple(range(len(list(program.walk()))))
    return program, EvenDims(every, parts)(program)


def assert_same(fn, parts: int) -> None:
    program, even = rewritten(fn, parts)
    for wanted, found in zip(
        run_program(program, [X]), run_program(even, [X]), strict=True
    ):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def drawn_moves(rng: Random):
    """A function that slices, pads, rolls and joins its operand, and adds the results."""
    moves = [(rng.randrange(6), rng.randrange(2), rng.randint(1, 2)) for _ in range(5)]
    summed = rng.randrange(2)

    def moved(x, kind: int, dim: int, by: int):
        n = x.shape[dim]
        ends = [(by, 0) if d == dim else (0, 0) for d in (0, 1)]
        if kind == 0 and n > 3 * by:
            return jax.lax.slice_in_dim(x, by, n - by, axis=dim)
        if kind == 1:
            return jnp.pad(x, ends, constant_values=2.0)
        if kind == 2:
            return jnp.pad(x, ends[::-1], mode="reflect")
        if kind == 3:
            return jnp.roll(x, by, dim)
        if kind == 4:
            return x + jnp.flip(jax.lax.slice_in_dim(x, n - 1, n, axis=dim), dim)
        return jnp.tanh(x)

    def fn(x):
        for move in moves:
            x = moved(x, *move)
        return x, (x * x).sum(summed)

    return fn


@pytest.mark.parametrize("seed", range(12))
def test_moves_and_their_gradients_stay_the_same(seed: int):
    fn = drawn_moves(Random(seed))
    for parts in (2, 8):
        assert_same(fn, parts)
        assert_same(jax.grad(lambda x: sum(jnp.sin(y).sum() for y in fn(x))), parts)


def test_a_gap_inside_a_window_keeps_its_fill():
    def last_row_up(x):
        rows = jax.lax.slice_in_dim(x, 15, 16)
        return jax.lax.pad(rows, 3.0, ((13, 1, 0), (0, 0, 0)))

    _, even = rewritten(last_row_up, 8)
    (found,) = run_program(even, [X])
    wanted = np.full((15, 8), 3.0, X.dtype)
    wanted[13] = X[15]
    np.testing.assert_array_equal(found, wanted)
    assert any(op.kind == "joined_slices" for op in even.ops)


def test_a_value_of_the_fill_alone_is_made():
    def outside(x):
        padded = jnp.pad(x, ((1, 1), (0, 0)), constant_values=4.0)
        return jax.lax.slice_in_dim(padded, 0, 1)

    _, even = rewritten(outside, 8)
    (found,) = run_program(even, [X])
    np.testing.assert_array_equal(found, np.full((1, 8), 4.0))


def test_a_padding_that_crops_every_element_leaves_the_fill():
    def cropped(x):
        return jax.lax.pad(x, 5.0, ((-16, 16, 0), (0, 0, 0)))

    _, even = rewritten(cropped, 8)
    np.testing.assert_array_equal(run_program(even, [X])[0], np.full((16, 8), 5.0))
