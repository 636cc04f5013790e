"""The tactic `overlap`: equal numbers, refusals, and what plans keep of it."""

import jax
import jax.numpy as jnp
import pytest

import meshwright as mw
from meshwright.app.tactic_text import parse_tactics
from meshwright.errors import TacticError
from meshwright.machine import load_machine
from meshwright.partitioner.lower import Gather
from meshwright.planner.overlap import overlap as overlap_module
from meshwright.planner.overlap import step_times as step_times_module
from meshwright.planner.overlap.step_times import mark_faster
from tests.partitioner.tactics import models

MESH = {"data": 2, "model": 4}
SEQUENCE = [
    mw.data_parallel("data"),
    mw.megatron("model"),
    mw.sequence_parallel("model"),
]


def layer(weights, x):
    """The sum of squares of a layer of Megatron."""
    hidden = jax.nn.relu(jnp.einsum("bsd,df->bsf", x, weights["up"]))
    y = x + jnp.einsum("bsf,fd->bsd", hidden, weights["down"])
    return jnp.mean(y.astype(jnp.float32) ** 2)


def arguments(batch=4, sequence=16, width=8, dtype="float32"):
    up, down = (width, 4 * width), (4 * width, width)
    shapes = {"up": up, "down": down, "x": (batch, sequence, width)}
    made = {
        name: jax.random.normal(jax.random.key(i), shape, dtype)
        for i, (name, shape) in enumerate(shapes.items())
    }
    return made, made.pop("x")


def large(batch=128, width=16384):
    return jax.eval_shape(lambda: arguments(batch, 2048, width, "bfloat16"))


def planned(tactics, args, mesh=MESH, gather=None, fn=layer):
    return mw.partition(jax.grad(fn), mesh, tactics, gather=gather).plan(*args)


@pytest.mark.parametrize("gather", ["shared", "at_use"])
@pytest.mark.parametrize("n", [2, 4, 8])
def test_a_layer_with_sequence_parallelism_forward_and_backward(n, gather):
    tactics = [mw.megatron("m"), mw.sequence_parallel("m"), mw.overlap("m")]
    step = mw.partition(jax.value_and_grad(layer), {"m": n}, tactics, gather=gather)
    args = arguments()
    counts = step.plan(*args).counts
    assert counts["all_gather"] == counts["reduce_scatter"] == 0
    assert counts["permute"] > 3 * (n - 1)
    assert step.check(*args).ok


def test_a_float32_check_of_bfloat16_runs_the_loops_as_well():
    args = arguments(dtype="bfloat16")
    step = mw.partition(jax.grad(layer), MESH, [*SEQUENCE, mw.overlap("model")])
    wide = step.specialize(args, {})[0].wide
    kinds = {op.kind for op in wide.decided.lowered.program.walk()}
    assert "permute" in kinds
    assert "all_gather" not in kinds
    assert step.check(*args).ok


@pytest.mark.slow
def test_a_language_model_in_a_scan():
    fn, args = models.language_model(
        models.fused_block, models.fused_weights(), stacked=True
    )
    step = mw.partition(fn, MESH, [*SEQUENCE, mw.overlap("model")])
    assert step.plan(*args).counts["permute"] > 0
    assert step.check(*args).ok


def test_gathers_of_zero_3_at_their_use():
    tactics = [mw.fsdp("data"), mw.overlap("data")]
    step = mw.partition(jax.grad(layer), {"data": 8}, tactics, gather="at_use")
    args = arguments(batch=8)
    before = planned([mw.fsdp("data")], args, {"data": 8}, "at_use").counts
    assert before["all_gather"] > 0
    assert step.plan(*args).counts["all_gather"] < before["all_gather"]
    assert step.check(*args).ok


def test_nothing_to_overlap_says_which_tactics_come_before():
    with pytest.raises(TacticError, match="sequence_parallel or fsdp, come before"):
        planned([mw.megatron("model"), mw.overlap("model")], arguments())


@pytest.mark.parametrize("axis", [3, None])
def test_an_axis_that_is_no_name(axis):
    with pytest.raises(TacticError, match="wanted the name of one"):
        mw.overlap(axis)


def test_the_text_of_the_tactic_is_its_call():
    tactic = mw.overlap("model", machine="tpu-v4")
    assert repr(tactic) == "mw.overlap('model', machine='tpu-v4')"
    assert parse_tactics(str(tactic)) == (tactic,)


def test_a_saved_plan_keeps_the_loops():
    args = arguments()
    plan = planned([*SEQUENCE, mw.overlap("model")], args)
    again = mw.Plan.from_json(plan.to_json())
    step = mw.partition(jax.grad(layer), again)
    assert step.plan(*args).counts == plan.counts
    assert "mw.overlap('model')" in again.code
    assert step.check(*args).ok


def test_permutes_are_explained_as_parts_of_their_collective():
    plan = planned([*SEQUENCE, mw.overlap("model")], arguments())
    permutes = [row for row in plan.collectives if row.kind == "permute"]
    assert permutes
    for row in permutes:
        assert row.reason.endswith("each beside a part of the product (overlap)")
        assert row.chain


def test_permutes_run_beside_products_and_the_step_is_faster():
    machine, args = load_machine("tpu-v4", 64), large()
    mesh = {"data": 16, "model": 4}
    before = planned(SEQUENCE, args, mesh).on(machine)
    overlapped = [*SEQUENCE, mw.overlap("model", machine="tpu-v4")]
    after = planned(overlapped, args, mesh).on(machine)
    assert after.step_time_s < before.step_time_s
    assert after.breakdown["permute hidden"] > 5 * after.breakdown["permute exposed"]


@pytest.mark.parametrize("width", [256, 2048, 16384])
@pytest.mark.parametrize(
    ("machine", "mesh"),
    [
        ("tpu-v4", {"data": 16, "model": 4}),
        ("tpu-v4", {"data": 4, "model": 16}),
        ("tpu-v5e", {"data": 2, "model": 8}),
        ("h100", {"data": 2, "model": 8}),
    ],
)
def test_with_the_cost_gate_no_step_is_slower(machine, mesh, width):
    args = large(batch=32, width=width)
    chosen = load_machine(machine, mesh["data"] * mesh["model"])
    before = planned(SEQUENCE, args, mesh).on(chosen)
    tactics = [*SEQUENCE, mw.overlap("model", machine=machine)]
    after = planned(tactics, args, mesh).on(chosen)
    assert after.step_time_s <= before.step_time_s
    assert after.counts["permute"] or after.steps[-1].refused


def test_the_cost_gate_builds_no_loop_of_hundreds_of_parts(monkeypatch):
    monkeypatch.setattr(overlap_module, "refused_by_rule", None)
    tactics = [mw.data_parallel("data"), mw.fsdp("data")]
    tactics += [mw.overlap("data", machine="h100")]
    plan = planned(tactics, large(batch=512, width=512), {"data": 512}, "at_use")
    refused = [str(refusal) for refusal in plan.steps[-1].refused]
    assert refused
    assert all("a loop would have 512 parts, and at most 64" in why for why in refused)


@pytest.mark.slow
@pytest.mark.parametrize("gather", ["shared", "at_use"])
@pytest.mark.parametrize("width", [2048, 8192, 12288, 18432])
@pytest.mark.parametrize(
    ("machine", "mesh"),
    [
        ("tpu-v4", {"data": 16, "model": 4}),
        ("tpu-v4", {"data": 64, "model": 8}),
        ("tpu-v4", {"data": 4, "model": 16}),
        ("tpu-v5e", {"data": 2, "model": 8}),
        ("h100", {"data": 2, "model": 8}),
    ],
)
def test_no_step_is_slower_however_values_are_gathered(machine, mesh, width, gather):
    args = large(batch=128, width=width)
    chosen = load_machine(machine, mesh["data"] * mesh["model"])
    before = planned(SEQUENCE, args, mesh, gather).on(chosen)
    tactics = [*SEQUENCE, mw.overlap("model", machine=machine)]
    after = planned(tactics, args, mesh, gather).on(chosen)
    assert after.step_time_s <= before.step_time_s


def test_a_loop_with_which_the_step_is_slower_is_refused(monkeypatch):
    """The step is faster only without the first of the loops."""
    first: list[int] = []

    def mark(state, groups, axes, machine):
        first.append(groups[0][0])
        return mark_faster(state, groups, axes, machine)

    def steps_s(state, machine):
        marked = {node for node, _ in state.overlapped}
        seconds = 1.0 - 0.01 * len(marked) + (0.5 if first[0] in marked else 0.0)
        return dict.fromkeys(Gather, seconds)

    monkeypatch.setattr(overlap_module, "mark_faster", mark)
    monkeypatch.setattr(step_times_module, "step_times", steps_s)
    tactics = [*SEQUENCE, mw.overlap("model", machine="tpu-v4")]
    plan = planned(tactics, large(), {"data": 64, "model": 8})
    told = [str(r) for r in plan.steps[-1].refused if "simulated step" in str(r)]
    assert len(told) == 1
    assert "takes 1000 ms without this loop, and 1490 ms with it" in told[0]
    assert plan.counts["permute"]


@pytest.mark.parametrize("rows", [4096, 512])
def test_loops_of_equal_layers_are_decided_together(monkeypatch, rows):
    """More layers need no more simulated steps, with loops that save time or do not."""
    simulated: list[int] = []

    def counted(*args, **options):
        simulated.append(1)
        return step_times(*args, **options)

    def loss(weights, x):
        for up, down in weights:
            x = x + jax.nn.relu(x @ up) @ down
        return jnp.mean(x**2)

    def num_simulated(layers):
        shape = jax.ShapeDtypeStruct
        up, down = shape((1024, 4096), jnp.float32), shape((4096, 1024), jnp.float32)
        tactics = [mw.data_parallel("data", "x"), mw.fsdp("data")]
        tactics.append(mw.overlap("data", machine="tpu-v5e"))
        simulated.clear()
        step = mw.partition(jax.grad(loss), {"data": 8}, tactics)
        step.plan([(up, down)] * layers, shape((rows, 1024), jnp.float32))
        return len(simulated)

    step_times = step_times_module.step_times
    for module in (overlap_module, step_times_module):
        monkeypatch.setattr(module, "step_times", counted)
    assert 0 < num_simulated(5) == num_simulated(3)


def test_a_gather_of_zero_3_runs_beside_the_layer_before():
    """Only the first is waited for; the others end before their own layer begins."""

    def loss(weights, x):
        for up, down in weights:
            x = x + jax.nn.relu(x @ up) @ down
        return jnp.mean(x.astype(jnp.float32) ** 2)

    shape = jax.ShapeDtypeStruct
    up, down = (shape(s, jnp.bfloat16) for s in ((4096, 16384), (16384, 4096)))
    x = shape((16384, 4096), jnp.bfloat16)
    tactics = [mw.data_parallel("data", "x"), mw.zero(3, "data")]
    step = mw.partition(jax.grad(loss), {"data": 8}, tactics)
    plan = step.plan([(up, down)] * 4, x).on("tpu-v5e")
    spans = plan.estimate.timeline.spans
    gathers = [s for s in spans if s.fusion.root.kind == "all_gather"]
    starts = [s.start_s for s in spans if s.fusion.root.kind == "dot_general"]
    assert len(gathers) == 8
    begun = [sum(start < gather.end_s for start in starts) for gather in gathers]
    assert begun == list(range(8))  # one more product each time, from none
    exposed, hidden = (
        plan.breakdown[f"all_gather {how}"] for how in ("exposed", "hidden")
    )
    assert exposed == pytest.approx((exposed + hidden) / 8)
