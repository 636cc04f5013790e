"""`autoplan(pipeline="auto")`: one mesh or stages, whichever takes less time."""

from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import pytest

import meshwright as mw
from meshwright.errors import PlanError
from meshwright.features.pipeline.find_pipeline import faster_of
from meshwright.machine import load_machine

V100 = Path(__file__).parents[3] / "benchmarks" / "machines" / "alpa-v100.toml"


def step(params, x):
    def loss(params):
        h, _ = jax.lax.scan(
            lambda h, w: (h + jnp.tanh(h @ w["up"]) @ w["down"], None), x, params
        )
        return jnp.mean(h.astype(jnp.float32) ** 2)

    value, grads = jax.value_and_grad(loss)(params)
    return jax.tree.map(lambda w, g: w - 0.1 * g, params, grads), value


def shapes(layers, width, batch):
    sizes = {"up": (layers, width, 4 * width), "down": (layers, 4 * width, width)}
    params = {k: jax.ShapeDtypeStruct(s, jnp.float16) for k, s in sizes.items()}
    return params, jax.ShapeDtypeStruct((batch, 256, width), jnp.float16)


@pytest.mark.slow
def test_one_mesh_is_kept_within_a_host_of_fast_links():
    args = shapes(layers=8, width=2048, batch=128)
    plan = mw.autoplan(step, args, machine=load_machine(V100, 8), pipeline="auto")
    assert isinstance(plan, mw.Plan)


@pytest.mark.slow
def test_stages_are_chosen_where_slow_links_join_the_hosts():
    args = shapes(layers=24, width=4096, batch=256)
    plan = mw.autoplan(step, args, machine=load_machine(V100, 16), pipeline="auto")
    assert isinstance(plan, mw.PipelinePlan)
    assert len(plan.stages) > 1


def nothing():
    raise PlanError("nothing fits")


def too_large():
    raise PlanError("one mesh is too small")


def taking(seconds, stages=2):
    return lambda: SimpleNamespace(step_time_s=seconds, stages=[None] * stages)


def test_the_faster_plan_is_returned_and_the_only_one_that_fits():
    assert faster_of(taking(2), taking(3)).step_time_s == 2
    assert faster_of(taking(3), taking(2)).step_time_s == 2
    assert faster_of(taking(3), taking(2, stages=1)).step_time_s == 3
    assert faster_of(too_large, taking(2, stages=1)).step_time_s == 2
    assert faster_of(taking(2), nothing).step_time_s == 2
    with pytest.raises(PlanError, match="one mesh is too small"):
        faster_of(too_large, nothing)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"pipeline": "yes"}, "wanted True, False or 'auto'"),
        ({"pipeline": None}, "wanted True, False or 'auto'"),
        ({"pipeline": "auto", "objective": "memory"}, "compares step times"),
    ],
)
def test_choices_that_do_not_go_together_are_refused(options, words):
    with pytest.raises(PlanError, match=words):
        mw.autoplan(step, shapes(2, 8, 8), machine="h100", chips=2, **options)
