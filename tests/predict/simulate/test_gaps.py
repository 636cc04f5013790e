"""Values that wait too long between two uses do not stay in scratch memory."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import meshwright as mw
from meshwright.predict.simulate.gaps import values_with_gaps
from meshwright.predict.simulate.timeline import COMPUTE

SQUARE = jax.ShapeDtypeStruct((1024, 1024), jnp.bfloat16)


def straight(x, w, between):
    kept = jnp.tanh(x @ w)
    y = kept @ w
    for _ in range(between):
        y = jnp.sin(y @ w)
    return y @ kept


def looped(x, w, between):
    kept = jnp.tanh(x @ w)
    y, _ = lax.scan(lambda y, _: (jnp.sin(y @ w), None), kept @ w, length=between)
    return y @ kept


@pytest.mark.parametrize("fn", [straight, looped])
def test_a_value_waits_as_long_as_is_computed_between_its_uses(fn):
    between = 6
    plan = mw.partition(lambda x, w: fn(x, w, between), {"a": 1}, []).plan(
        SQUARE, SQUARE
    )
    timeline = plan.on("tpu-v5e").estimate.timeline
    gap_s = timeline.busy_s(COMPUTE) * between / (between + 3)  # equal products
    (kept,) = values_with_gaps(timeline, 0.8 * gap_s)
    assert kept.shape == SQUARE.shape
    assert not values_with_gaps(timeline, 1.2 * gap_s)


def test_what_waits_longer_than_scratch_memory_takes_to_copy_is_in_main_memory():
    def bytes_of(between):
        fn = mw.partition(lambda x, w: straight(x, w, between), {"a": 1}, [])
        return fn.plan(SQUARE, SQUARE).on("tpu-v5e").peak_memory_bytes

    size = 2 * 1024 * 1024
    assert bytes_of(300) - bytes_of(3) == pytest.approx(size, abs=2**17)
