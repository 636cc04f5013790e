"""Pipeline plans of a small train step: stages, figures, JSON, and refusals."""

from collections import defaultdict

import jax
import jax.numpy as jnp
import pytest

import meshwright as mw
from meshwright.errors import PlanError
from meshwright.features.pipeline.batch_sizes import ResizableStep
from meshwright.features.pipeline.corrections import Corrections
from meshwright.features.pipeline.fastest_built import built_plan
from meshwright.features.pipeline.find_pipeline import find_pipeline
from meshwright.features.pipeline.planning.blocks.step_blocks import (
    StepBlocks,
    StepPhase,
)
from meshwright.features.pipeline.planning.pipeline_planner import PipelinePlanner
from meshwright.features.pipeline.planning.pipeline_task import (
    PipelineTask,
    microbatch_counts,
    near_divisors,
)
from meshwright.features.pipeline.schedules.schedule_picture import (
    schedule_page,
    schedule_text,
)
from meshwright.machine import load_machine
from meshwright.planner.driver.request import SearchRequest

LAYERS, WIDTH, BATCH = 6, 64, 32


def loss(params, x):
    def layer(x, w):
        return jnp.tanh(x @ w), None

    x, _ = jax.lax.scan(layer, x, params["layers"])
    return jnp.mean((x @ params["head"]) ** 2)


def train_step(params, x):
    value, grads = jax.value_and_grad(loss)(params, x)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), value


def unrolled_step(params, x):
    def unrolled_loss(params, x):
        for w in params["layers"]:
            x = jnp.tanh(x @ w)
        return jnp.mean((x @ params["head"]) ** 2)

    value, grads = jax.value_and_grad(unrolled_loss)(params, x)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), value


def shape(*dims):
    return jax.ShapeDtypeStruct(dims, jnp.float32)


SCANNED = ({"layers": shape(LAYERS, WIDTH, WIDTH), "head": shape(WIDTH, WIDTH)},)
UNROLLED = ({"layers": [shape(WIDTH, WIDTH)] * LAYERS, "head": shape(WIDTH, WIDTH)},)
X = shape(BATCH, WIDTH)


@pytest.fixture(scope="module")
def plan():
    return find_pipeline(train_step, (*SCANNED, X), SearchRequest("v100", chips=4))


@pytest.mark.parametrize(
    ("fn", "params"), [(train_step, SCANNED), (unrolled_step, UNROLLED)]
)
def test_the_backward_pass_of_a_product_is_at_its_block(fn, params):
    step = StepBlocks.of(ResizableStep(fn, (*params, X)).captured)
    products = [s for op, s in step.sites.items() if op.kind == "dot_general"]
    blocks = [
        number
        for number, block in enumerate(step.blocks)
        if step.program.ops[block.op].kind in ("dot_general", "scan")
    ]
    for block in blocks:
        own = {s.phase for s in products if s.first <= block < s.first + s.count}
        # Nobody needs the gradient of the data.
        is_first = block == blocks[0] and fn is unrolled_step
        assert StepPhase.WEIGHT_GRADIENT in own
        assert (StepPhase.INPUT_GRADIENT in own) is not is_first


def test_iterations_of_a_loop_over_layers_are_blocks():
    step = StepBlocks.of(ResizableStep(train_step, (*SCANNED, X)).captured)
    loop = [block for block in step.blocks if block.iteration > 0]
    assert len(loop) == LAYERS - 1
    assert {block.incoming_bytes for block in loop} == {4.0 * BATCH * WIDTH}


def test_a_budget_ends_pricing_early_and_still_gives_a_plan():
    lines = []
    request = SearchRequest("v100", chips=4, budget_s=0.01, on_progress=lines.append)
    plan = find_pipeline(train_step, (*SCANNED, X), request)
    assert any("no time to price" in line for line in lines)
    assert plan.step_time_s > 0


def test_a_step_without_gradients_is_refused():
    with pytest.raises(PlanError, match="planned for a train step"):
        StepBlocks.of(ResizableStep(loss, (*SCANNED, X)).captured)


def test_a_plan_uses_all_devices_and_covers_all_layers(plan):
    assert sum(stage.mesh.num_devices for stage in plan.stages) == 4
    starts = [stage.choice.layers[0] for stage in plan.stages]
    assert starts == [0, *(stage.choice.layers[1] for stage in plan.stages[:-1])]
    assert BATCH % plan.num_microbatches == 0
    assert plan.step_time_s > 0
    assert max(plan.simulate().peak_bytes) <= plan.limit_bytes


def test_a_plan_is_no_slower_than_any_published_schedule(plan):
    first, *others = plan.search.candidates
    assert plan.step_time_s == first.step_time_s
    assert others
    assert all(first.step_time_s <= each.step_time_s for each in others)


def test_the_time_of_a_found_plan_is_the_simulated_time_of_its_pipeline(plan):
    again = mw.pipeline(train_step, plan).plan(*SCANNED, X)
    again = again.on(plan.machine, donate_state=True)
    assert again.step_time_s == pytest.approx(plan.step_time_s, rel=1e-9)


def test_numbers_of_microbatches_near_the_best_divide_the_batch():
    assert microbatch_counts(1536)[:6] == (1, 2, 3, 4, 6, 8)
    # 128 sequences can be cut 128 ways, and 15,360 / 64 only 16 ways.
    assert {64, 120} <= {*microbatch_counts(15_360)}
    assert near_divisors(1536, 32) == (24, 48)
    assert near_divisors(1024, 32) == ()


def test_pictures_have_a_row_for_each_submesh(plan):
    found = plan.simulate()
    assert len(schedule_text(found, 40).splitlines()) == len(plan.stages)
    page = schedule_page(str(plan), found)
    assert page.count("<title>") == 1 + sum(map(len, found.spans))


def test_a_batch_that_the_step_fixes_is_refused():
    def fixed(params, x):
        return train_step(params, x.reshape(BATCH, WIDTH))

    with pytest.raises(PlanError, match="cannot be traced with a batch of 8"):
        ResizableStep(fixed, (*SCANNED, X)).capture(8)


def test_one_stage_with_one_microbatch_keeps_its_loop_over_layers():
    tactics = [mw.data_parallel("data")]
    mesh = {"stage": 1, "data": 2}
    one = mw.pipeline(train_step, mesh, tactics, microbatches=1).plan(*SCANNED, X)
    kinds = {op.kind for op in one.step.staged.program.walk()}
    assert "scan" in kinds


def test_too_little_memory_is_refused():
    with pytest.raises(PlanError, match=r"fits into their memory; recompute layers"):
        find_pipeline(
            train_step, (*SCANNED, X), SearchRequest("v100", chips=2, memory=2000)
        )


def test_built_stages_correct_the_prices_of_their_strategy():
    step = ResizableStep(train_step, (*SCANNED, X))
    machine = load_machine("v100", 4)
    planner = PipelinePlanner(
        PipelineTask("step", step.capture, BATCH, machine, machine.chip.usable_bytes)
    )
    planned = planner.plan(2)
    built = built_plan(step.captured, planned).on(machine, donate_state=True)

    def priced(stage):
        return next(
            option.costs
            for option in planner.options(2)
            if option.priced.strategy.tactics == stage.choice.tactics
            and option.priced.strategy.mesh(option.data) == stage.mesh
        )

    learned = Corrections(4)
    learned.learn(planned.stages, built.stages)
    planner.corrected = learned.corrected

    def needed(sizes):
        return sizes.state + sizes.activations + sizes.working

    errors, margins = defaultdict(float), defaultdict(float)
    for stage, real in zip(planned.stages, built.stages, strict=True):
        costs, layers, kind = priced(stage), stage.choice.layers, stage.choice.tactics
        errors[kind] += costs.times(*layers).total_s - real.times.total_s
        margin = needed(costs.bytes(*layers)) / needed(real.bytes)
        margins[kind] = max(margins[kind], margin)
    assert all(error == pytest.approx(0, abs=1e-12) for error in errors.values())
    assert min(margins.values()) >= 1 - 1e-9
