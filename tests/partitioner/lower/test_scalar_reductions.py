"""All-reduces of scalars that do not depend on each other are combined into one."""

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import meshwright as mw

MESH = {"data": 4}
WEIGHTS = [np.full((8, i + 1), 0.5 + i, np.float32) for i in range(4)]


def partitioned(fn, **cuts):
    return mw.partition(fn, MESH, [mw.shard(cuts or {"ws.*": 0}, "data")])


def test_norms_of_many_tensors_are_one_all_reduce():
    step = partitioned(lambda ws: [jnp.sqrt((w**2).sum()) for w in ws])
    plan = step.plan(WEIGHTS)
    assert plan.counts["all_reduce"] == 1
    (collective,) = plan.collectives
    assert collective.value == "f32[4]"
    assert "together with 3 more scalars" in collective.reason
    assert step.check(WEIGHTS).ok


def test_scalars_with_kept_dims_are_combined_too():
    step = partitioned(lambda ws: [w.sum(keepdims=True) for w in ws])
    assert step.plan(WEIGHTS).counts["all_reduce"] == 1
    assert step.check(WEIGHTS).ok


def test_a_scalar_that_depends_on_another_is_summed_after_it():
    def fn(ws):
        first = (ws[0] ** 2).sum()
        return first, jnp.sin(ws[1] * first).sum()

    step = partitioned(fn)
    assert step.plan(WEIGHTS).counts["all_reduce"] == 2
    assert step.check(WEIGHTS).ok


def test_sums_and_maxima_and_other_dtypes_are_combined_among_themselves():
    def fn(ws):
        sums = [jnp.sin(w).sum() for w in ws]
        maxima = [w.max() for w in ws]
        counts = [(w > 1).sum() for w in ws]
        return [*sums, *maxima, *counts]

    step = partitioned(fn)
    assert step.plan(WEIGHTS).counts["all_reduce"] == 3
    assert step.check(WEIGHTS).ok


def test_vectors_are_not_combined():
    step = partitioned(lambda ws: [jnp.sin(w.sum(0)) for w in ws[1:]])
    assert step.plan(WEIGHTS).counts["all_reduce"] == 3


@pytest.mark.parametrize("num_scaled", [1, 4])
def test_a_large_reader_waits_for_the_scalars_before_it(num_scaled):
    """Each weight that is scaled by its own norm ends the wait for further norms."""

    def fn(ws):
        out = [w / jnp.sqrt((w**2).sum()) for w in ws[:num_scaled]]
        return out, [jnp.sqrt((w**2).sum()) for w in ws]

    step = partitioned(fn)
    assert step.plan(WEIGHTS).counts["all_reduce"] == num_scaled + (num_scaled < 4)
    assert step.check(WEIGHTS).ok


def test_scalars_in_a_loop_are_combined_in_each_iteration():
    def fn(xs):
        def body(carry, x):
            return carry + jnp.sin((x**2).sum()), jnp.cos(x).sum()

        return lax.scan(body, 0.0, xs)

    xs = np.ones((3, 8, 2), np.float32)
    step = partitioned(fn, xs=1)
    assert step.plan(xs).counts["all_reduce"] == 3
    assert step.check(xs).ok
