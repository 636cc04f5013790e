"""Sequential axes: the same numbers, less memory, and what a loop in time cannot do."""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import meshwright as mw
from meshwright.errors import MeshError
from meshwright.machine.mesh import parse_mesh
from meshwright.partitioner.lower.time_stages import find_stages

MESH = mw.Mesh({"data": 4}, sequential={"micro": 4})
BATCH = [mw.data_parallel("data"), mw.data_parallel("micro")]


def normal(*shape, seed=0):
    return jax.random.normal(jax.random.key(seed), shape)


PARAMS = {"up": normal(16, 64) / 4, "down": normal(64, 8, seed=1) / 8}
DATA = {"x": normal(64, 16, seed=2), "y": normal(64, 8, seed=3)}


def train_step(params, batch):
    def loss_of(params):
        hidden = jnp.tanh(batch["x"] @ params["up"])
        return jnp.mean((hidden @ params["down"] - batch["y"]) ** 2)

    loss, grads = jax.value_and_grad(loss_of)(params)
    scale = 1 / (1 + jnp.sqrt(sum(jnp.sum(g * g) for g in jax.tree.leaves(grads))))
    new = jax.tree.map(lambda w, g: w - 0.1 * scale * g, params, grads)
    return new, loss


def loops_of(plan):
    return [op for op in plan.decided.lowered.program.ops if op.kind == "scan"]


def test_gradients_are_added_up_in_one_loop_and_summed_over_devices_once():
    step = mw.partition(train_step, MESH, BATCH)
    plan = step.plan(PARAMS, DATA)
    (loop,) = loops_of(plan)
    assert loop.params["length"] == 4
    assert not any(wire.is_stacked and wire.operand is None for wire in loop.wires)
    assert plan.counts["all_reduce"] == 3  # two weights and the loss
    assert plan.mesh.num_devices == 4
    assert plan.spec("batch.x") == jax.sharding.PartitionSpec("data", None)
    assert step.check(PARAMS, DATA).ok


STACK = {"up": normal(3, 16, 32) / 4, "down": normal(3, 32, 16, seed=1) / 6}


def scanned_step(params, x):
    def loss_of(params):
        def layer(h, w):
            return h + jnp.tanh(h @ w["up"]) @ w["down"], None

        return jnp.mean(jax.lax.scan(layer, x, params)[0] ** 2)

    loss, grads = jax.value_and_grad(loss_of)(params)
    return jax.tree.map(lambda w, g: w - 0.1 * g, params, grads), loss


@pytest.mark.parametrize(
    ("tactics", "inside", "after"),
    [
        ((), {}, 2),
        ([mw.megatron("model")], {"model": 2}, 2),  # one each way, in every layer
        ([mw.fsdp("data")], {}, 0),  # ZeRO reduces within the loop, which needs less
    ],
)
def test_gradients_of_scanned_layers_are_reduced_once_after_both_loops(
    tactics, inside, after
):
    mesh = mw.Mesh({"data": 2, "model": 2}, sequential={"micro": 4})
    step = mw.partition(scanned_step, mesh, [BATCH[0], *tactics, BATCH[1]])
    program = step.plan(STACK, DATA["x"]).decided.lowered.program
    reduced = [op for op in program.ops if op.kind == "all_reduce"]
    assert len([op for op in reduced if op.results[0].shape]) == after
    loops = [op for op in program.walk() if op.kind == "all_reduce"]
    axes = [op.params["axes"] for op in loops if op not in reduced]
    assert axes == [(axis,) for axis, count in inside.items() for _ in range(count)]
    assert step.check(STACK, DATA["x"]).ok


def test_a_loop_needs_less_memory_and_the_prediction_says_so():
    def memory(tactics, mesh):
        step = mw.partition(train_step, mesh, tactics)
        shapes = jax.eval_shape(lambda: (PARAMS, jax.tree.map(wider, DATA)))
        compiled = step.lower(*shapes).compile().memory_analysis()
        predicted = step.plan(*shapes).on("cpu").figures.peak_memory_bytes
        held = compiled.argument_size_in_bytes + compiled.output_size_in_bytes
        return predicted, held + compiled.temp_size_in_bytes

    def wider(x):
        return jnp.repeat(x, 256, axis=0)

    whole, whole_compiled = memory(BATCH[:1], {"data": 4})
    looped, looped_compiled = memory(BATCH, MESH)
    assert looped_compiled < 0.6 * whole_compiled
    assert whole == pytest.approx(whole_compiled, rel=0.1)
    assert looped == pytest.approx(looped_compiled, rel=0.1)


def test_a_mean_over_the_whole_batch_takes_two_loops():
    def normalized(x, w):
        y = x @ w
        return jnp.tanh((y - y.mean(0)) / jnp.sqrt(y.var(0) + 1e-3)).sum(0)

    step = mw.partition(normalized, MESH, [mw.shard({"x": 0}, a) for a in MESH.axes])
    args = DATA["x"], PARAMS["up"]
    assert len(loops_of(step.plan(*args))) >= 2
    assert step.check(*args).ok


def test_a_loss_divided_by_a_count_of_tokens_keeps_no_activations():
    """The count is needed first; the forward pass then runs in the second loop."""

    def step(params, batch):
        mask = batch["y"] > 0

        def loss_of(params):
            hidden = jnp.tanh(batch["x"] @ params["up"])
            errors = (hidden @ params["down"] - batch["y"]) ** 2
            return jnp.sum(errors * mask) / jnp.sum(mask)

        return jax.grad(loss_of)(params)

    partitioned = mw.partition(step, MESH, BATCH)
    plan = partitioned.plan(PARAMS, DATA)
    stacked = [
        value.shape
        for loop in loops_of(plan)
        for wire, value in ((w, loop.results[w.result]) for w in loop.wires if w.result)
        if wire.is_stacked
    ]
    assert all(shape[-1] != 64 for shape in stacked), stacked
    assert partitioned.check(PARAMS, DATA).ok


def test_results_of_the_batch_come_back_in_their_order():
    def predict(w, x):
        return jnp.tanh(x @ w), jnp.argmax(x, axis=1), (x @ w).T

    tactics = [mw.shard({"x": 0}, "data"), mw.shard({"x": 0}, "micro")]
    step = mw.partition(predict, MESH, tactics)
    found = step(PARAMS["up"], DATA["x"])
    for a, b in zip(found, predict(PARAMS["up"], DATA["x"]), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_random_numbers_are_those_of_the_whole_batch():
    def noisy(key, x):
        return x + jax.random.normal(key, x.shape), jax.random.permutation(key, 5)

    tactics = [mw.shard({"x": 0}, axis) for axis in MESH.axes]
    step = mw.partition(noisy, MESH, tactics)
    found = step(jax.random.key(7), DATA["x"])
    for a, b in zip(found, noisy(jax.random.key(7), DATA["x"]), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


def test_tactics_of_a_sequential_axis_come_last():
    step = mw.partition(train_step, MESH, BATCH[::-1])
    with pytest.raises(MeshError, match="apply the tactics of 'micro' last"):
        step.plan(PARAMS, DATA)


def test_a_sum_that_a_loop_of_the_program_needs_is_refused_with_its_line():
    def recurrent(x):
        def one(state, _):
            return jnp.tanh(state - state.mean(0)), None

        return jax.lax.scan(one, x, None, length=3)[0]

    step = mw.partition(recurrent, MESH, [mw.shard({"x": 0}, "micro")])
    with pytest.raises(MeshError, match=r"test_time_loops.*inside of a scan"):
        step.plan(DATA["x"])


def test_a_mesh_has_one_sequential_axis_and_prints_it():
    assert str(MESH) == "data=4,time:micro=4"
    assert parse_mesh(str(MESH)) == MESH
    assert parse_mesh("data=4,micro=4") != MESH
    assert MESH.spatial == mw.Mesh({"data": 4})
    with pytest.raises(MeshError, match="at most one"):
        mw.Mesh({"data": 4}, sequential={"a": 2, "b": 2})
    with pytest.raises(MeshError, match="both one of devices and sequential"):
        mw.Mesh({"data": 4}, sequential={"data": 2})


def test_a_plan_with_a_sequential_axis_is_saved_and_runs(tmp_path):
    plan = mw.partition(train_step, MESH, BATCH).plan(PARAMS, DATA)
    plan.save(tmp_path / "plan.json")
    loaded = mw.Plan.load(tmp_path / "plan.json")
    assert loaded.mesh == MESH
    again = mw.partition(train_step, loaded)
    found = jax.tree.leaves(again(PARAMS, DATA))
    for a, b in zip(found, jax.tree.leaves(train_step(PARAMS, DATA)), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_searches_and_constraints_refuse_a_sequential_axis():
    with pytest.raises(MeshError, match="axes of devices only"):
        mw.autoplan(train_step, (PARAMS, DATA), machine="tpu-v5e", mesh=MESH)
    with pytest.raises(MeshError, match="knows only axes of devices"):
        mw.partition(train_step, MESH, [mw.auto(["data"], machine="tpu-v5e")]).plan(
            PARAMS, DATA
        )
    plan = mw.partition(train_step, MESH, BATCH).plan(PARAMS, DATA)
    with pytest.raises(MeshError, match="cannot say that a loop runs"):
        plan.annotate(train_step)(PARAMS, DATA)


def test_stages_of_a_program_without_the_axis_are_none():
    plan = mw.partition(train_step, {"data": 4}, BATCH[:1]).plan(PARAMS, DATA)
    assert find_stages(plan.decided.lowered.program, "micro").num_loops == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt", "llm", "t5", "vit", "unet", "multimodal"])
def test_microbatches_of_the_zoo_give_the_numbers_of_one_device(name):
    workload = importlib.import_module(f"zoo.{name}").workload
    fn, args = workload.tiny()
    mesh = mw.Mesh(workload.mesh, sequential={"micro": 2})
    tactics = [*workload.schedules[workload.best], mw.data_parallel("micro")]
    report = mw.partition(fn, mesh, tactics).check(*args)
    assert report.ok, str(report)
