"""`autoplan(pipeline="auto")`: one mesh or stages, whichever takes less time."""

from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import meshwright as mw
from meshwright.errors import PlanError
from meshwright.features.pipeline.find_pipeline import faster_of
from meshwright.features.pipeline.schedule_candidates import with_candidates
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


def listed_step(params, x):
    """The same as `step`, with a list of layers in place of a loop over stacked weights."""

    def loss(params):
        h = x
        for w in params:
            h = h + jnp.tanh(h @ w["up"]) @ w["down"]
        return jnp.mean(h.astype(jnp.float32) ** 2)

    value, grads = jax.value_and_grad(loss)(params)
    return jax.tree.map(lambda w, g: w - 0.1 * g, params, grads), value


@pytest.mark.slow
def test_stages_are_chosen_where_slow_links_join_the_hosts():
    stacked, x = shapes(layers=24, width=4096, batch=256)
    layer = {k: jax.ShapeDtypeStruct(s.shape[1:], s.dtype) for k, s in stacked.items()}
    machine = load_machine(V100, 16)
    plans = [
        mw.autoplan(fn, (params, x), machine=machine, pipeline="auto")
        for fn, params in ((listed_step, [layer] * 24), (step, stacked))
    ]
    for plan in plans:
        assert isinstance(plan, mw.PipelinePlan)
        assert len(plan.stages) > 1
    seconds = [plan.step_time_s for plan in plans]
    assert max(seconds) <= 1.05 * min(seconds)  # a loop's layers are as good as a list


@pytest.mark.slow
def test_stages_that_need_more_than_priced_are_searched_again():
    args = shapes(layers=8, width=2048, batch=128)
    free = mw.autoplan(step, args, machine=load_machine(V100, 8), pipeline=True)
    tight = 0.6 * free.peak_memory_bytes
    plan = mw.autoplan(
        step, args, machine=load_machine(V100, 8), pipeline=True, memory=int(tight)
    )
    assert plan.fits
    assert plan.peak_memory_bytes <= tight


PARAMS = {
    "up": jax.ShapeDtypeStruct((4, 64, 256), jnp.float32),
    "down": jax.ShapeDtypeStruct((4, 256, 64), jnp.float32),
}
X = jax.ShapeDtypeStruct((32, 16, 64), jnp.float32)


@pytest.fixture(scope="module")
def both():
    """A plan on one mesh and a pipeline that are both found, as functions."""
    options = {"machine": "v100", "chips": 2}
    plan = mw.autoplan(step, (PARAMS, X), search="experts", **options)
    pipeline = mw.pipeline(step, {"stage": 2}, microbatches=2).plan(PARAMS, X)
    return plan, with_candidates(pipeline.on("v100", donate_state=True), 0.0)


def taking(plan, seconds):
    figures = replace(plan.figures, step_time_s=seconds)
    return lambda: replace(plan, figures=figures)


def failing(words):
    def fail():
        raise PlanError(words)

    return fail


def test_the_faster_plan_is_returned_with_the_other_as_a_candidate(both):
    plan, pipeline = both
    found = faster_of(taking(plan, 2), taking(pipeline, 3))
    assert isinstance(found, mw.Plan)
    assert "pipeline, 2 stages" in str(found.candidates)
    found = faster_of(taking(plan, 3), taking(pipeline, 2))
    assert isinstance(found, mw.PipelinePlan)
    assert "one mesh, " in str(found.candidates)


def test_a_plan_says_why_there_is_none_of_the_other_kind(both):
    plan, pipeline = both
    found = faster_of(taking(plan, 3), failing("no batch to divide"))
    assert "no pipeline: no batch to divide" in str(found)
    rows = mw.Plan.from_json(found.to_json()).candidates.rows
    assert "pipeline: no batch to divide" in rows[-1][-1]
    found = faster_of(failing("too large"), taking(pipeline, 3))
    assert "no plan on one mesh: too large" in str(found)
    with pytest.raises(PlanError, match="too large"):
        faster_of(failing("too large"), failing("no batch"))


def test_auto_says_why_a_step_without_a_backward_pass_is_no_pipeline():
    def forward(params, x):
        return jnp.tanh(x @ params["up"][0]).sum()

    args, options = (PARAMS, X), {"search": "experts", "pipeline": "auto"}
    plan = mw.autoplan(forward, args, machine="v100", chips=2, **options)
    assert "no pipeline: " in str(plan)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"pipeline": "yes"}, "wanted True, False or 'auto'"),
        ({"pipeline": None}, "wanted True, False or 'auto'"),
        ({"pipeline": "auto", "objective": "memory"}, "compares step times"),
        ({"pipeline": True, "objective": "memory"}, "does not take the objective"),
        ({"pipeline": True, "tactics": [mw.fsdp("data")]}, "does not take tactics"),
        ({"pipeline": True, "search": "tree"}, "does not take search='tree'"),
    ],
)
def test_choices_that_do_not_go_together_are_refused(options, words):
    with pytest.raises(PlanError, match=words):
        mw.autoplan(step, shapes(2, 8, 8), machine="h100", chips=2, **options)
