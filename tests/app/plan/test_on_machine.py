"""A plan on a machine: its figures, and their JSON form."""

import json
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import meshwright as mw
from meshwright.app.explain.show import show_explanation
from meshwright.errors import MachineError, PlanError
from zoo import gpt

MESH = {"batch": 4, "model": 2}


@pytest.fixture(scope="module")
def plan():
    schedule = gpt.schedules["bp+mp+z3"]
    step = mw.partition(gpt.train_step, MESH, schedule, donate_argnums=0)
    return step.plan(*gpt.shapes(replace(gpt.T32, layers=2)))


@pytest.fixture(scope="module")
def placed(plan):
    return plan.on(mw.machine("tpu-v4", chips=8), "iowa")


def test_a_plan_on_a_machine_has_time_memory_energy_and_price(placed):
    assert 0 < placed.step_time_s < 10
    assert 0 < placed.mfu < 1
    exposed = [s for k, s in placed.breakdown.items() if not k.endswith("hidden")]
    assert sum(exposed) == pytest.approx(placed.step_time_s)
    assert placed.energy_j > 0
    assert placed.cost_usd > 0
    assert placed.co2e_g == pytest.approx(placed.energy_j / 3.6e6 * 478)


def test_the_largest_values_at_the_peak_have_source_lines(placed):
    largest = placed.figures.largest
    assert [v.bytes for v in largest] == sorted(
        (v.bytes for v in largest), reverse=True
    )
    assert sum(v.bytes for v in largest) <= placed.peak_memory_bytes
    assert any("zoo/" in v.source for v in largest)
    assert "zoo/" in placed.figures.peak_source


def spent_s(placed):
    """On collectives, by each of them and by the breakdown."""
    seconds = placed.figures.collective_s
    assert len(seconds) == len(placed.collectives)
    assert all(s > 0 for s in seconds)
    spent = sum(
        s * c.executions for s, c in zip(seconds, placed.collectives, strict=True)
    )
    expected = sum(
        s for k, s in placed.breakdown.items() if k.endswith(("exposed", "hidden"))
    )
    return spent, expected


def test_every_collective_has_its_seconds(placed):
    spent, expected = spent_s(placed)
    assert spent == pytest.approx(expected)


@pytest.mark.parametrize("machine", ["tpu-v5e", "h100"])
def test_a_collective_moved_out_of_a_loop_has_its_seconds(machine):
    def fn(w, xs):
        def microbatch(total, x):
            return total + jax.grad(lambda w: jnp.tanh(x @ w).sum())(w), None

        return w - lax.scan(microbatch, jnp.zeros_like(w), xs)[0]

    args = jnp.ones((256, 256)), jnp.ones((8, 64, 256))
    tactics = [mw.shard({"xs": 1}, "data"), mw.shard({"w": 0}, "data")]
    placed = mw.partition(fn, {"data": 4}, tactics).plan(*args).on(machine)
    assert max(c.executions for c in placed.collectives) > 1
    spent, expected = spent_s(placed)
    assert spent == pytest.approx(expected)


def test_figures_survive_json(placed):
    assert mw.Plan.from_json(placed.to_json()) == placed


def test_a_plan_without_a_machine_says_how_to_name_one(plan):
    with pytest.raises(PlanError, match=r"plan\.on\("):
        _ = plan.step_time_s


def test_a_machine_of_another_size_is_refused(plan):
    with pytest.raises(MachineError, match=r"has 8 devices, machine tpu-v4 16"):
        plan.on(mw.machine("tpu-v4", chips=16))


def test_the_error_names_the_axes_of_the_user_not_sub_axes():
    """Its second axis only goes into half of the dim, so that the first has parts."""
    step = mw.partition(
        lambda x: x.reshape(4, 4, 8).sum(0), {"data": 8}, [mw.shard({"x": 0}, "data")]
    )
    plan = step.plan(np.ones((16, 8), np.float32))
    assert plan.counts["all_reduce"] == 1
    with pytest.raises(MachineError, match=r"mesh data=8 has 8 devices"):
        plan.on(mw.machine("tpu-v4", chips=16))


def test_a_name_stands_for_as_many_devices_as_the_mesh_has(plan):
    named, made = plan.on("tpu-v4"), plan.on(mw.machine("tpu-v4", chips=8))
    assert named.figures == made.figures
    with pytest.raises(MachineError, match="did you mean 'tpu-v5p'"):
        plan.on("tpu-v5q")


def test_a_plan_from_json_cannot_be_placed_on_a_machine(plan):
    with pytest.raises(PlanError, match="no program to simulate"):
        mw.Plan.from_json(plan.to_json()).on(mw.machine("tpu-v4", chips=8))


def test_chips_with_two_cores_count_twice():
    assert mw.machine("tpu-v3", chips=16).num_devices == 32
    assert mw.machine("tpu-v5e", chips=16).num_devices == 16
    with pytest.raises(MachineError, match="at least one chip, got 0"):
        mw.machine("h100", chips=0)


def test_a_plan_in_json_without_compiled_runs_is_read(plan):
    fields = json.loads(plan.on("tpu-v4").to_json())
    del fields["figures"]["collective_runs"], fields["figures"]["is_peak_power"]
    old = mw.Plan.from_json(json.dumps(fields))
    assert "s each, x" in show_explanation(old)
    assert not old.figures.is_peak_power


def test_a_collective_moved_out_of_a_loop_is_explained_with_its_compiled_runs():
    """A TPU reduces an accumulator once behind the loop, a GPU in each iteration."""

    def step(w, xs):
        return jax.lax.scan(lambda total, x: (total + x.T @ w, None), 0 * w, xs)[0]

    f32 = jax.ShapeDtypeStruct((1024, 1024), np.float32)
    args = f32, jax.ShapeDtypeStruct((5, 1024, 1024), np.float32)
    tactics = [mw.shard({"xs": 1}, "data"), mw.shard({"w": 0}, "data")]
    plan = mw.partition(step, {"data": 8}, tactics).plan(*args)
    (scatter,) = (c for c in plan.collectives if c.kind == "reduce_scatter")
    assert scatter.executions == 5
    found = {name: plan.on(name) for name in ("tpu-v4", "h100")}
    at = plan.collectives.index(scatter)
    runs = {name: each.figures.collective_runs[at] for name, each in found.items()}
    assert runs == {"tpu-v4": 1, "h100": 5}
    texts = {name: show_explanation(each) for name, each in found.items()}
    assert "µs each, x5 at" in texts["h100"]
    assert "x5, compiled into x1, " in texts["tpu-v4"]


def test_tokens_of_accumulated_batches_count(placed):
    """[accumulation, batch, length], beside the length of each sequence."""

    def step(table, batch):
        def add(total, part):
            kept = np.arange(128) < part["lengths"][:, None]
            return total + (table[part["tokens"]].sum(-1) * kept).sum(), None

        return jax.lax.scan(add, 0.0, batch)[0]

    def whole(*dims):
        return jax.ShapeDtypeStruct(dims, np.int32)

    table = jax.ShapeDtypeStruct((100, 8), np.float32)
    batch = {"lengths": whole(4, 16), "tokens": whole(4, 16, 128)}
    plan = mw.partition(step, MESH).plan(table, batch).on("tpu-v4")
    assert plan.tokens_per_step == 4 * 16 * 128
    assert plan.tokens_per_s == pytest.approx(4 * 16 * 128 / plan.step_time_s)
    given = plan.with_tokens(1000)
    assert given.tokens_per_s == pytest.approx(1000 / plan.step_time_s)
    assert mw.Plan.from_json(given.to_json()).tokens_per_step == 1000
    with pytest.raises(PlanError, match="0 tokens per step; wanted 1 or more"):
        plan.with_tokens(0)
