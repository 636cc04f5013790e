"""Pipelined steps: the numbers of the whole step, on submeshes, in any order."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import meshwright as mw
from meshwright.errors import (
    CaptureError,
    MeshError,
    PlanError,
    ScheduleError,
    StageError,
)
from meshwright.features.pipeline.planning.pipeline_stage import (
    PipelineStage,
)
from meshwright.features.pipeline.running import stage as stage_module
from meshwright.features.pipeline.schedules.generators import (
    SCHEDULES,
    STAGES_PER_SUBMESH,
)
from meshwright.features.pipeline.schedules.schedule import Schedule
from meshwright.features.pipeline.schedules.simulate import StageBytes
from meshwright.features.pipeline.stages.marks import StagePoint
from meshwright.features.pipeline.stages.staged_step import stage_programs
from meshwright.program.capture import capture
from tests.features.pipeline.models import (
    BATCH,
    PARAMS,
    interpreted,
    layer,
    loss_of,
    train_step,
    unmarked_step,
)

DATA = [mw.data_parallel("data")]


def test_two_stages_on_data_and_model_equal_the_step_on_one_device():
    mesh = {"stage": 2, "data": 2, "model": 2}
    tactics = [*DATA, mw.megatron("model")]
    step = mw.pipeline(train_step, mesh, tactics, microbatches=4)
    assert step.check(PARAMS, BATCH).ok
    params, _ = step(PARAMS, BATCH)
    second = params["layers"][3]["up"].sharding
    assert {d.id for d in second.device_set} == {4, 5, 6, 7}
    assert "model" in str(second.spec)


@settings(max_examples=6)
@given(
    schedule=st.sampled_from(sorted(SCHEDULES)),
    microbatches=st.sampled_from([2, 4]),
    cuts=st.sets(st.integers(1, 20), min_size=3, max_size=3),
)
def test_any_cuts_and_any_schedule_equal_the_whole_step(schedule, microbatches, cuts):
    count = 4 // STAGES_PER_SUBMESH.get(schedule, 1)
    microbatches = 4 if schedule == "dualpipev" else microbatches
    step = mw.pipeline(
        unmarked_step,
        {"stage": count},
        stages=sorted(cuts),
        microbatches=microbatches,
        schedule=schedule,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stage_module, "task_function", interpreted)
        report = step.check(PARAMS, BATCH)
    assert report.ok, report


def test_submeshes_and_tactics_may_differ_between_stages():
    meshes = [{"data": 2}, {"data": 4}]
    tactics = {"0": DATA, "from 2": [*DATA, mw.fsdp("data")]}
    step = mw.pipeline(train_step, meshes, tactics, microbatches=2, schedule="zb-h1")
    assert step.check(PARAMS, BATCH).ok


def scanned_loss(params, batch):
    h = params["embedding"][batch["x"]]
    h, _ = jax.lax.scan(lambda h, w: (layer(h, w), None), h, params["layers"])
    return (h**2).mean()


def test_a_stage_may_begin_within_a_loop_over_layers():
    layers = jax.tree.map(lambda *each: jnp.stack(each), *PARAMS["layers"])
    params = {**PARAMS, "layers": layers}

    def step_fn(params, batch):
        return train_step(params, batch, scanned_loss)

    program = capture(step_fn, (params, BATCH)).program
    loop = next(i for i, op in enumerate(program.ops) if op.kind == "scan")
    step = mw.pipeline(
        step_fn,
        {"stage": 3},
        stages=[StagePoint(loop, 1), StagePoint(loop, 3)],
        microbatches=2,
    )
    products = [
        sum(
            op.kind == "dot_general"
            for task in (tasks.forward, tasks.backward)
            for op in task.program.ops
        )
        for _, tasks in stage_programs(step.stage(params, BATCH))
    ]
    assert products == [6, 12, 6]  # of 1, 2 and 1 layers, forward and backward
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stage_module, "task_function", interpreted)
        assert step.check(params, BATCH).ok


@pytest.mark.parametrize("on_cluster", [False, True])
def test_each_stage_keeps_the_state_of_its_own_layers_of_a_loop(on_cluster):
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3))
    layers = jax.tree.map(lambda *each: jnp.stack(each), *PARAMS["layers"])
    params = {**PARAMS, "layers": layers}

    def step_fn(state, batch):
        params, inner = state
        value, grads = jax.value_and_grad(scanned_loss)(params, batch)
        updates, inner = optimizer.update(grads, inner, params)
        return (optax.apply_updates(params, updates), inner), value

    wanted = state = params, optimizer.init(params)
    with mw.cluster("inline") as cluster:
        submeshes = [{"data": 2}, {"data": 1}]  # with three layers and with one
        if on_cluster:
            submeshes = [cluster.slice(mesh) for mesh in submeshes]
        step = mw.pipeline(step_fn, submeshes, DATA, stages=2, microbatches=2)
        assert step.check(state, BATCH).ok
        plan = step.plan(state, BATCH)
        sent = [stage.work.once_sent_bytes for stage in plan.stages if stage.work]
        assert max(sent) < layers["up"][0].nbytes  # sums for the norm alone
        for _ in range(3):
            state, value = step(state, BATCH)
            wanted, wanted_value = jax.jit(step_fn)(wanted, BATCH)
        np.testing.assert_allclose(float(value), wanted_value, rtol=1e-4)
        for got, want in zip(*map(jax.tree.leaves, (state, wanted)), strict=True):
            assert (got.shape, got.dtype) == (want.shape, want.dtype)
            np.testing.assert_allclose(np.asarray(got), want, rtol=2e-3, atol=1e-4)


def test_a_marked_function_is_itself_elsewhere():
    marked, plain = train_step(PARAMS, BATCH), unmarked_step(PARAMS, BATCH)
    pairs = zip(jax.tree.leaves(marked), jax.tree.leaves(plain), strict=True)
    assert all(jnp.array_equal(a, b) for a, b in pairs)
    assert mw.partition(train_step, {"data": 2}, DATA).check(PARAMS, BATCH).ok


def test_a_step_without_gradients_is_pipelined_too():
    def predict(params, batch):
        h = (
            mw.stage(params["embedding"][batch["x"]], "middle")
            @ PARAMS["layers"][0]["up"]
        )
        return jnp.tanh(h), batch["x"].sum()

    step = mw.pipeline(predict, {"stage": 2}, microbatches=4)
    assert step.check(PARAMS, BATCH).ok


def dropout_step(weights, x, key):
    def loss_of(weights):
        h = jnp.tanh(x @ weights["first"])
        kept = jax.random.bernoulli(key, 0.9, h.shape)
        return jnp.mean((mw.stage(h * kept, "second") @ weights["second"]) ** 2)

    grads = jax.grad(loss_of)(weights)
    return jax.tree.map(lambda w, g: w - g, weights, grads)


EXPORTS_KEYS = pytest.mark.skipif(
    jax.__version_info__ < (0, 10, 2), reason="calls no exported program with keys"
)


@pytest.mark.parametrize("on_cluster", [False, pytest.param(True, marks=EXPORTS_KEYS)])
def test_dropout_with_a_typed_key_is_that_of_the_whole_step(on_cluster):
    x = jax.random.normal(jax.random.key(0), (8, 6))
    weights = {"first": x[:6] / 4, "second": x[:6, :3] / 4}
    submeshes = [{"data": 2}, {"data": 2}]
    with mw.cluster("inline") as cluster:
        if on_cluster:
            submeshes = [cluster.slice(mesh) for mesh in submeshes]
        step = mw.pipeline(dropout_step, submeshes, DATA, microbatches=2)
        report = step.check(weights, x, jax.random.key(1))
    assert report.ok, report


def test_stages_run_on_slices_of_a_cluster():
    with mw.cluster("inline") as cluster:
        slices = [cluster.slice({"data": 2}) for _ in range(2)]
        step = mw.pipeline(train_step, slices, DATA, microbatches=2)
        assert step.check(PARAMS, BATCH).ok
        params, _ = step(PARAMS, BATCH)
        _, loss = step(params, BATCH)  # of handles
        assert float(loss) < float(train_step(PARAMS, BATCH)[1])


def masked_step(params, batch):
    def masked_loss(params):
        h = params["embedding"][batch["x"]]
        for weights in params["layers"]:
            h = layer(h, weights)
        is_word = batch["y"] > 5
        scores = jax.nn.log_softmax(h @ params["embedding"].T)
        picked = jnp.take_along_axis(scores, batch["y"][..., None], -1)[..., 0]
        return -jnp.sum(picked * is_word) / is_word.sum()

    grads = jax.grad(masked_loss)(params)
    return jax.tree.map(lambda w, g: w - 0.1 * g, params, grads)


def test_a_loss_may_be_divided_by_the_number_of_tokens_that_a_mask_keeps():
    step = mw.pipeline(masked_step, {"stage": 2, "data": 2}, DATA, microbatches=4)
    assert step.check(PARAMS, BATCH).ok


def test_a_stage_planned_at_the_mask_begins_at_the_next_op_that_reads_weights():
    ops = capture(masked_step, (PARAMS, BATCH)).program.ops
    mask = next(i for i, op in enumerate(ops) if op.kind == "gt")
    step = mw.pipeline(
        masked_step, {"stage": 2}, stages=[StagePoint(mask)], microbatches=2
    )
    assert step.check(PARAMS, BATCH).ok


def test_ops_of_a_microbatch_keep_their_order_behind_a_count():
    """The forward pass waits for the count, so that its activations need not be kept."""

    def counted_step(params, batch):
        mask = batch["y"] > 5

        def loss_of(params):
            h = jnp.tanh(params["embedding"][batch["x"]] @ params["layers"][0]["up"])
            return jnp.sum(h**2) / jnp.sum(mask)

        return jax.grad(loss_of)(params)

    step = mw.pipeline(counted_step, {"stage": 2}, microbatches=2)
    kinds = [op.kind for op in step.forward(PARAMS, BATCH).ops]
    assert kinds.index("gather") < kinds.index("dot_general") < kinds.index("tanh")
    assert step.check(PARAMS, BATCH).ok


def test_a_stage_planned_behind_the_program_is_refused():
    step = mw.pipeline(
        masked_step, {"stage": 2}, stages=[StagePoint(10_000)], microbatches=2
    )
    with pytest.raises(StageError, match="begins at op 10000; no op from there on"):
        step.plan(PARAMS, BATCH)


# -- plans ---------------------------------------------------------------------------


def test_a_plan_shows_stages_submeshes_microbatches_memory_and_schedule():
    step = mw.pipeline(train_step, {"stage": 2, "data": 2}, DATA, microbatches=4)
    plan = step.plan(*jax.eval_shape(lambda: (PARAMS, BATCH)))
    text = str(plan)
    assert "2 stages of data=2, 4 microbatches" in text
    assert "from 2" in text
    assert "F0.0 F0.1 B0.0" in text
    assert mw.PipelinePlan.from_json(plan.to_json()) == plan
    assert "from 2" in plan._repr_html_()


def test_stages_begin_at_positions_of_the_forward_pass():
    step = mw.pipeline(unmarked_step, {"stage": 2}, stages=[7], microbatches=4)
    forward = step.forward(PARAMS, BATCH)
    staged = step.stage(PARAMS, BATCH).staged
    assert staged.cuts.starts == (0, 7)
    assert staged.cuts.backward == len(forward.ops)
    wanted = len(forward.ops) - 1
    for wrong in ([7, 7], [9, 7], [0, 7], [-1, 7], [7, wanted + 1], [7, 100_000]):
        with pytest.raises(StageError, match=rf"growing positions from 1 to {wanted}"):
            mw.pipeline(unmarked_step, {"stage": 3}, stages=wrong).stage(PARAMS, BATCH)
    with pytest.raises(PlanError, match=r"2\.5.*wanted the positions of ops"):
        mw.pipeline(unmarked_step, {"stage": 2}, stages=[2.5])


@pytest.mark.parametrize("replicas", [1, 2])
def test_stages_may_share_a_resharding_of_the_batch(replicas):
    def loss(params, batch):
        tokens = batch["x"]
        h = params["embedding"][tokens[:, :-1]]
        for weights in params["layers"][:2]:
            h = layer(h, weights)
        scores = mw.stage(h, "second") @ params["embedding"].T
        scores = jax.nn.log_softmax(scores)
        return -jnp.take_along_axis(scores, tokens[:, 1:, None], -1).mean()

    def step_fn(params, batch):
        return train_step(params, batch, loss)

    mesh = {"stage": 2, "data": replicas}
    assert mw.pipeline(step_fn, mesh, DATA, microbatches=2).check(PARAMS, BATCH).ok


def test_a_tactic_that_rewrites_the_program_is_refused():
    with pytest.raises(PlanError, match=r"recompute.*write jax\.checkpoint around"):
        mw.pipeline(train_step, {"stage": 2}, [mw.recompute("tanh")])


def marked(marks, of_gradients=""):
    def step(params, batch):
        def loss(params):
            h = params["embedding"][batch["x"]]
            for i, weights in enumerate(params["layers"]):
                h = mw.stage(h, marks[i]) if i in marks else h
                h = layer(h, weights)
            return jnp.mean(h**2)

        grads = jax.grad(loss)(params)
        grads = mw.stage(grads, of_gradients) if of_gradients else grads
        return jax.tree.map(lambda w, g: w - 0.1 * g, params, grads)

    return step


@pytest.mark.parametrize(
    ("step", "submeshes", "words"),
    [
        (marked({1: "a"}), 4, "has 2 stages.* there are 4; give 2 submeshes.*for 4 st"),
        (marked({1: "a", 2: "a"}), 2, "'a' is marked a second time"),
        (marked({1: "0"}), 2, "'0' is the name of the ops before the first mark"),
        (marked({}, "g"), 2, "'g' is marked on a gradient"),
        (marked({1: "a"}, "g"), 2, "'g' is marked on a gradient"),
    ],
)
def test_marks_that_make_no_stages_are_refused(step, submeshes, words):
    with pytest.raises((StageError, PlanError), match=words):
        mw.pipeline(step, [{"data": 1}] * submeshes, microbatches=2).plan(PARAMS, BATCH)


def test_the_leaves_of_a_pytree_are_marked_as_one():
    def step(params, batch):
        h = params["embedding"][batch["x"]] @ params["layers"][0]["up"]
        h, mask = mw.stage((h, batch["x"] > 3), "upper")
        return jnp.mean(jnp.tanh(h) * mask[..., None])

    plan = mw.pipeline(step, {"stage": 2}, microbatches=2).plan(PARAMS, BATCH)
    assert [stage.name for stage in plan.stages] == ["0", "upper"]


def test_gpipe_keeps_all_microbatches_and_1f1b_one_for_each_later_stage():
    def peaks(schedule):
        step = mw.pipeline(
            unmarked_step, {"stage": 2}, microbatches=8, schedule=schedule
        )
        return step.plan(PARAMS, BATCH)

    one, all_first = peaks("1f1b"), peaks("gpipe")
    kept = [stage.bytes.activations for stage in one.stages]
    assert one.stages == all_first.stages
    saved = [a - b for a, b in zip(all_first.peak_bytes, one.peak_bytes, strict=True)]
    assert saved == [6 * kept[0], 7 * kept[1]]


def test_a_file_that_is_no_plan_is_refused():
    with pytest.raises(PlanError, match="no plan of a pipeline"):
        mw.PipelinePlan.from_json("[]")


# -- refusals ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mesh", "options", "words"),
    [
        ({"data": 2}, {}, "has no axis 'stage'"),
        ({"data": 2, "stage": 2}, {}, "wanted it first"),
        ([], {}, "no submeshes"),
        ({"stage": 2}, {"schedule": "1f2b"}, "did you mean '1f1b'"),
        ({"stage": 2}, {"microbatches": 0}, "wanted an int >= 1"),
        ({"stage": 2}, {"statistics": "all"}, "wanted 'whole' or 'microbatch'"),
    ],
)
def test_choices_that_do_not_fit_are_refused(mesh, options, words):
    with pytest.raises(PlanError, match=words):
        mw.pipeline(train_step, mesh, **options)


def test_a_schedule_for_other_stages_is_refused():
    step = mw.pipeline(train_step, {"stage": 4}, microbatches=4)
    with pytest.raises(PlanError, match=r"has 2 stages.* there are 4; give 2"):
        step.plan(PARAMS, BATCH)


def test_a_schedule_that_deadlocks_is_refused_before_it_runs():
    stuck = Schedule.parse("F0.0 B0.0 F0.1 B0.1\nF1.1 F1.0 B1.0 B1.1")
    step = mw.pipeline(train_step, {"stage": 2}, microbatches=2, schedule=stuck)
    with pytest.raises(ScheduleError, match=r"stage 1, microbatch 1 \(F1.1\)"):
        step(PARAMS, BATCH)


def test_a_schedule_that_exceeds_memory_is_refused_before_it_runs():
    options = {"microbatches": 4, "schedule": "gpipe"}
    step = mw.pipeline(train_step, {"stage": 2}, memory=30_000, **options)
    with pytest.raises(ScheduleError, match=r"stage \d needs .* at microbatch \d"):
        step(PARAMS, BATCH)
    with pytest.raises(PlanError, match=r"memory is .much."):
        mw.pipeline(train_step, {"stage": 2}, memory="much")


def test_a_plan_on_a_machine_says_the_time_of_a_step_and_its_bubbles():
    step = mw.pipeline(train_step, {"stage": 2, "data": 2}, DATA, microbatches=4)
    plan = step.plan(PARAMS, BATCH).on("a100-80g")
    assert plan.figures is not None
    assert plan.figures.step_time_s > 4 * max(
        stage.times.forward_s for stage in plan.stages
    )
    assert 0 < plan.bubble_fraction < 1
    again = mw.PipelinePlan.from_json(plan.to_json())
    assert again == plan
    with pytest.raises(PlanError, match="no programs to simulate"):
        again.on("a100-80g")


def test_microbatches_that_do_not_divide_the_batch_are_refused():
    step = mw.pipeline(train_step, {"stage": 2}, microbatches=5)
    with pytest.raises(StageError, match="5 microbatches"):
        step.plan(PARAMS, BATCH)


def test_a_mark_inside_of_a_loop_is_refused_with_its_line():
    def looped(params, batch):
        def one(h, _):
            return mw.stage(jnp.tanh(h), "inner"), None

        h = jax.lax.scan(one, params["embedding"][batch["x"]], None, length=2)[0]
        return h.mean()

    step = mw.pipeline(looped, {"stage": 1}, microbatches=2)
    with pytest.raises(StageError, match=r"test_pipelined.*inside of a scan"):
        step.plan(PARAMS, BATCH)


def test_the_name_of_a_stage_is_a_text():
    with pytest.raises(CaptureError, match="wanted a text"):
        mw.stage(jnp.ones(3), "a:b")


def test_more_submeshes_than_devices_are_refused():
    step = mw.pipeline(train_step, {"stage": 2, "data": 16}, microbatches=2)
    with pytest.raises(MeshError, match="32 devices, but JAX sees 8"):
        step(PARAMS, BATCH)


def test_a_stage_that_raises_says_its_name_and_line():
    def check(x):
        if (x > 1e6).any():
            raise ValueError("too large")
        return x

    def step_fn(params, batch):
        grads = jax.grad(lambda p, b: 1e9 * loss_of(p, b, ()))(params, batch)
        checked = jax.tree.map(
            lambda g: jax.pure_callback(
                check, jax.ShapeDtypeStruct(g.shape, g.dtype), g
            ),
            grads,
        )
        return jax.tree.map(jnp.subtract, params, checked)

    step = mw.pipeline(step_fn, {"stage": 2}, stages=2, microbatches=2)
    with pytest.raises(
        StageError, match=r"stage '[01]' failed in the update.*too large"
    ):
        step(PARAMS, BATCH)


def test_what_autoplan_has_found_is_pipelined():
    mesh, tactics = mw.Mesh({"data": 2}), (mw.data_parallel("data"),)
    stages = tuple(
        PipelineStage(str(number), number, mesh, StageBytes(1, 1), tactics=tactics)
        for number in range(2)
    )
    found = mw.PipelinePlan(
        stages, SCHEDULES["1f1b"](2, 4), starts=(StagePoint(8),), name="train_step"
    )
    step = mw.pipeline(unmarked_step, found)
    plan = step.plan(PARAMS, BATCH)
    assert [stage.mesh for stage in plan.stages] == [mesh, mesh]
    assert plan.schedule == found.schedule
    with pytest.raises(PlanError, match="give the plan alone"):
        mw.pipeline(unmarked_step, found, DATA)
    again = mw.pipeline(unmarked_step, plan).plan(PARAMS, BATCH)
    assert again == plan
