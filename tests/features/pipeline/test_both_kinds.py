"""What plans promise holds for both kinds: a plan on one mesh, and a pipeline."""

import json
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import pytest

import meshwright as mw
from meshwright.app.planned_step import PlannedStep
from meshwright.errors import MachineError, PlanError
from meshwright.features.pipeline.plan.text import stage_table
from meshwright.run.compilers.confirm import DeviceStep, export_step
from tests.fake_compiler import install
from tests.features.pipeline.models import BATCH, PARAMS, unmarked_step

ARGS = (PARAMS, BATCH)
KINDS = ("mesh", "pipeline")
OPTIONS = {"chips": 2, "budget_s": 1.0}


def built(kind, step=unmarked_step, args=ARGS):
    data = [mw.data_parallel("data")]
    if kind == "mesh":
        return mw.partition(step, {"data": 2}, data).plan(*args)
    mesh = {"stage": 2, "data": 1}
    return mw.pipeline(step, mesh, data, microbatches=4).plan(*args)


@pytest.fixture(scope="module", params=KINDS)
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def plain(kind):
    """A plan without a machine."""
    return built(kind)


@pytest.fixture(scope="module")
def plan(plain):
    return plain.on("h100", "iowa")


@pytest.fixture(scope="module")
def found(kind):
    """A plan that a search found."""
    search = {"pipeline": True} if kind == "pipeline" else {"search": "experts"}
    return mw.autoplan(
        unmarked_step, ARGS, machine="h100", place="iowa", **OPTIONS, **search
    )


def load(kind, path):
    return (mw.Plan if kind == "mesh" else mw.PipelinePlan).load(path)


def layers_step(params, x, keep):
    """A step of square layers that `jax.checkpoint` computes again, unless `keep`."""

    def layer(x, w):
        return jnp.tanh(x @ w)

    def loss(params, x):
        for w in params:
            x = (layer if keep else jax.checkpoint(layer))(x, w)
        return jnp.mean(x)

    value, grads = jax.value_and_grad(loss)(params, x)
    return jax.tree.map(jnp.subtract, params, grads), value


def test_model_flops_count_recomputation_once(kind):
    """4 layers of 3 products, the first of 2; each has one more on the hardware."""
    args = [jnp.ones((256, 256))] * 4, jnp.ones((64, 256))
    kept, again = (
        built(kind, partial(layers_step, keep=keep), args).on("h100")
        for keep in (True, False)
    )
    assert kept.hfu == kept.mfu
    assert "HFU" not in str(kept)
    assert again.hfu / again.mfu == pytest.approx(15 / 11, rel=0.01)
    flops = [plan.mfu * plan.step_time_s for plan in (kept, again)]
    assert flops[1] == pytest.approx(flops[0], rel=0.01)
    assert "HFU, with recomputation" in str(again)
    assert json.loads(again.to_json())["figures"]["hfu"] == again.hfu


def test_a_plan_has_the_figures_of_a_step(plan):
    assert isinstance(plan, PlannedStep)
    assert 0 < plan.mfu < 1
    assert plan.tokens_per_s == pytest.approx(16 * 4 / plan.step_time_s)
    assert plan.num_parameters == sum(w.size for w in jax.tree.leaves(PARAMS))
    assert plan.cost_usd > 0
    assert plan.energy_j > 0
    assert plan.co2e_g == pytest.approx(plan.energy_j / 3.6e6 * 478)
    assert plan.fits
    assert 0 < plan.peak_memory_bytes <= plan.figures.usable_bytes
    assert plan.figures.largest
    assert plan.figures.lines


def test_the_visible_parts_of_the_breakdown_add_up_to_the_step(plan):
    parts = [s for name, s in plan.breakdown.items() if not name.endswith("hidden")]
    assert sum(parts) == pytest.approx(plan.step_time_s)
    assert sum(plan.figures.compute_bounds.values()) == pytest.approx(
        plan.breakdown["compute"]
    )


def test_a_plan_prints_its_figures_and_where_they_come_from(plan, plain):
    text = str(plan)
    for word in ("MFU", "tokens/s", "fits", "parameters", "computing", "a step costs"):
        assert word in text
    assert "models.py" in text
    assert "name a machine" in str(plain)
    assert "MFU" in plan._repr_html_()


def test_the_page_and_the_trace_compare_plans_of_both_kinds(plan, tmp_path):
    others = [built(kind).on("a100-80g") for kind in KINDS]
    plan.report(tmp_path / "plan.html", others)
    page = (tmp_path / "plan.html").read_text()
    for section in ("summary", "comparison"):
        assert f'id="{section}"' in page
    plan.trace(tmp_path / "trace.json", others)
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    names = {e["pid"] for e in events if e["name"] == "process_name"}
    alone = {e["pid"] for e in plan.trace_events(1)}
    assert len(names) == len(alone) + 1 + 2
    end = max(
        e["ts"] + e["dur"] for e in events if e["ph"] == "X" and e["pid"] in alone
    )
    assert end <= 1.001e6 * plan.step_time_s


def test_a_saved_plan_is_loaded_with_its_figures_and_candidates(kind, found, tmp_path):
    found.save(tmp_path / "plan.json")
    again = load(kind, tmp_path / "plan.json")
    assert again == found
    assert again.mfu == found.mfu
    assert again.candidates == found.candidates
    assert again.code == found.code
    assert again.num_parameters == found.num_parameters
    with pytest.raises(PlanError, match="read from JSON"):
        again.on("h100")
    with pytest.raises(PlanError, match="read from JSON"):
        again.report(tmp_path / "page.html")
    with pytest.raises(PlanError, match="read from JSON"):
        again.confirm("h100")
    run = mw.partition if kind == "mesh" else mw.pipeline
    assert run(unmarked_step, again).check(*ARGS).ok


def test_the_best_candidate_is_the_plan(found, plain):
    assert found.candidates.rows[0][2] != "-"
    first = found.search.candidates[0]
    assert first.step_time_s == pytest.approx(found.step_time_s)
    assert first.peak_memory_bytes == found.peak_memory_bytes
    with pytest.raises(PlanError, match="has candidates"):
        _ = plain.candidates


def test_the_code_of_a_plan_makes_it_again(kind, plain):
    names = {"mw": mw, "unmarked_step": unmarked_step}
    if kind == "mesh":
        tactics = eval(plain.code, names)
        again = mw.partition(unmarked_step, plain.mesh, tactics).plan(*ARGS)
        assert again.inputs == plain.inputs
    else:
        exec(plain.code, names)
        assert names["step"].plan(*ARGS) == plain


def wide_step(state, x):
    """A step whose memory is that of its weights and momenta."""

    def loss(params):
        h = x
        for w in params:
            h = jnp.tanh(h @ w)
        return jnp.mean(h**2)

    value, grads = jax.value_and_grad(loss)(state["w"])
    momenta = jax.tree.map(lambda m, g: 0.9 * m + g, state["m"], grads)
    params = jax.tree.map(lambda w, m: w - 0.1 * m, state["w"], momenta)
    return {"w": params, "m": momenta}, value


WEIGHTS = [jnp.eye(256) + i for i in range(4)]
STATE = {"w": WEIGHTS, "m": WEIGHTS}


def partitioned(kind, fn):
    if kind == "mesh":
        return mw.partition(fn, {"data": 2}, [mw.data_parallel("data", "x")])
    return mw.pipeline(fn, {"stage": 2, "data": 1}, microbatches=2)


def test_undonated_state_is_counted_and_donated_state_is_not(kind):
    args = STATE, jnp.ones((4, 256))
    plan = partitioned(kind, wide_step).plan(*args)
    kept, donated = (plan.on("h100", donate_state=each) for each in (False, True))
    saved = kept.peak_memory_bytes - donated.peak_memory_bytes
    assert saved >= WEIGHTS[0].nbytes
    jitted = jax.jit(wide_step, donate_argnums=0)
    own = partitioned(kind, jitted).plan(*args).on("h100")
    assert own.peak_memory_bytes == donated.peak_memory_bytes


def test_a_step_takes_the_memory_of_the_state_that_its_caller_donates(kind):
    step = partitioned(kind, jax.jit(wide_step, donate_argnums=0))
    x = jnp.ones((4, 256))
    wanted, _ = wide_step(wide_step(STATE, x)[0], x)
    first, _ = step(jax.tree.map(jnp.copy, STATE), x)
    second, _ = step(first, x)
    assert all(w.is_deleted() for w in jax.tree.leaves(first))
    for a, b in zip(jax.tree.leaves(second), jax.tree.leaves(wanted), strict=True):
        assert jnp.allclose(a, b, rtol=1e-5)


def test_a_machine_of_another_size_is_refused(plain):
    with pytest.raises(MachineError, match="2 devices"):
        plain.on(mw.machine("h100", chips=4))


def test_a_plan_that_is_called_says_what_runs_it(plain):
    with pytest.raises(PlanError, match="does not run"):
        plain(*ARGS)


def test_a_plan_is_compared_with_the_real_compiler(kind, plan, monkeypatch):
    install(monkeypatch)
    found = plan.confirm("h100")
    assert (found.machine, found.num_devices) == ("h100", 2)
    assert "predicted" in str(found)
    json.dumps(found.to_json())
    compiled = [found] if kind == "mesh" else [each for _, _, each in found.tasks]
    assert {each.compiled.peak_bytes for each in compiled} == {7000}
    with pytest.raises(PlanError, match=r"a TPU, this one is on h100"):
        plan.confirm("tpu")


def test_each_task_of_a_pipeline_is_exported_for_the_compiler():
    tasks = built("pipeline").on("h100").simulated_step.tasks
    assert {task.name for task in tasks} >= {"forward pass", "backward pass", "update"}
    for task in tasks:
        step = DeviceStep(
            task.decided.lowered, task.decided.captured.avals, task.estimate.donated
        )
        assert export_step(step, "cuda")


def test_stages_that_are_alike_are_one_row_of_the_table():
    steps = mw.pipeline(unmarked_step, {"stage": 4}, stages=4, microbatches=4)
    plan = steps.plan(PARAMS, BATCH)
    middle = replace(plan.stages[1], name="2", submesh=2)
    alike = replace(plan, stages=(*plan.stages[:2], middle, plan.stages[3]))
    names = [line.split()[0] for line in str(stage_table(alike)).splitlines()[1:]]
    assert "1 to 2" in str(stage_table(alike))
    assert names == ["0", "1", "3"]
