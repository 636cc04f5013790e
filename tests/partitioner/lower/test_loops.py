"""What loops are handed for all their turns, and where it is gathered."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import meshwright as mw
from tests.planner.programs import recurrent

MESH = {"data": 4}
TURNS, INNER = 5, 3


def normal(*shape):
    return np.random.default_rng(len(shape)).normal(size=shape).astype(np.float32)


def gathers(fn, args, cut, gather="shared"):
    """All-gathers a step, once the partitioned step has been compared."""
    tactics = [mw.data_parallel("data", "xs"), mw.shard(cut, "data")]
    step = mw.partition(fn, MESH, tactics, gather=gather)
    assert step.check(*args).ok
    return step.plan(*args).counts["all_gather"]


ARGS = normal(8, 8), normal(8, 8), normal(TURNS, 16, 8)


@pytest.mark.parametrize(
    ("gather", "count"), [("shared", 2), ("at_use", TURNS * (1 + INNER))]
)
def test_shared_a_weight_is_gathered_before_the_loop_that_reads_it(gather, count):
    assert gathers(recurrent, ARGS, {"w": 0, "v": 0}, gather) == count


def test_two_loops_and_who_comes_after_share_what_was_gathered():
    def step(w, xs):
        def turn(state, x):
            return jnp.tanh(state @ w + x), None

        state = lax.scan(turn, jnp.zeros_like(xs[0]), xs)[0]
        return lax.scan(turn, state, xs, reverse=True)[0] @ w

    assert gathers(step, (ARGS[0], ARGS[2]), {"w": 0}) == 1


def test_a_remat_in_a_loop_reads_what_was_gathered_for_the_loop():
    """Forward, and again in the loop that goes back."""

    def step(w, xs):
        def turn(state, x):
            return jax.checkpoint(lambda s: jnp.tanh(jnp.tanh(s @ w) @ w + x))(
                state
            ), None

        def loss(state):
            return lax.scan(turn, state, xs)[0].sum()

        return jax.grad(loss)(jnp.zeros_like(xs[0]))

    assert gathers(step, (ARGS[0], ARGS[2]), {"w": 0}) == 1


def test_the_condition_and_the_body_of_a_while_loop_too():
    def step(w, xs):
        def more(carry):
            turn, state = carry
            return (turn < TURNS) & (jnp.abs(state @ w).max() < 1e6)

        def body(carry):
            turn, state = carry
            return turn + 1, jnp.tanh(state @ w)

        return lax.while_loop(more, body, (0, xs))[1]

    assert gathers(step, (ARGS[0], normal(16, 8)), {"w": 0}) == 1


def test_what_only_some_read_gathered_stays_as_it_is_stored():
    """A total that each device has a part of needs its part, the product all."""

    def step(w, xs):
        def turn(total, x):
            state, kept = total
            return (jnp.tanh(state @ w + x), kept + 0.1 * w), None

        return lax.scan(turn, (jnp.zeros_like(xs[0]), w), xs)[0]

    args = ARGS[0], ARGS[2]
    assert gathers(step, args, {"w": 0}) == TURNS


def test_weights_of_layers_are_gathered_turn_by_turn():
    """Each turn has a weight of its own, which nobody needs before."""

    def step(ws, xs):
        return lax.scan(lambda x, w: (jnp.tanh(x @ w), None), xs, ws)[0]

    args = normal(TURNS, 8, 8), normal(16, 8)
    assert gathers(step, args, {"ws": 1}) == TURNS
