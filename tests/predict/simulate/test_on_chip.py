"""Values stay in scratch memory if they do not wait for long; large ones if it helps."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import meshwright as mw
from meshwright.predict.simulate.on_chip import values_with_gaps
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


@pytest.mark.parametrize(("width", "is_kept"), [(64, True), (4096, False)])
def test_a_large_value_stays_in_scratch_memory_if_that_saves_time(width, is_kept):
    """Narrow products wait for main memory; wide ones compute for longer."""
    shapes = (16384, width), (width, 2048), (2048, width)
    x, up, down = (jax.ShapeDtypeStruct(s, jnp.bfloat16) for s in shapes)
    step = mw.partition(lambda x, up, down: x @ up @ down, {"a": 1}, [])
    estimate = step.plan(x, up, down).on("tpu-v5e").estimate
    (kept,) = [v.shape for v in estimate.layouts.on_chip] or [None]
    assert kept == ((16384, 2048) if is_kept else None)


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
