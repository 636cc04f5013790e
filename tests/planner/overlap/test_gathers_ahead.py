"""Weights of scanned layers are gathered one iteration ahead: equal numbers, refusals."""

import jax
import jax.numpy as jnp
import pytest

import meshwright as mw
from meshwright.app.report.page import make_page
from meshwright.app.report.trace_events import trace_events
from meshwright.app.tactic_text import parse_tactics
from meshwright.errors import TacticError
from meshwright.partitioner.lower import Gather
from meshwright.planner.overlap import gathers_ahead as ahead_module

MESH = {"data": 8}
AHEAD = mw.overlap("data", products=False, ahead=True)


def loss(weights, x, reverse=False):
    """The mean square of the output of scanned feed-forward layers."""

    def layer(x, w):
        hidden = jax.nn.relu(x @ w["up"].astype(x.dtype))
        return x + hidden @ w["down"].astype(x.dtype), jnp.sum(hidden)

    x, sums = jax.lax.scan(layer, x, weights, reverse=reverse)
    return jnp.mean(x.astype(jnp.float32) ** 2) + 1e-3 * jnp.sum(sums)


def arguments(layers=4, width=16, batch=16, dtype="float32"):
    up, down = (layers, width, 4 * width), (layers, 4 * width, width)
    keys = jax.random.split(jax.random.key(0), 3)
    weights = {
        "up": 0.2 * jax.random.normal(keys[0], up, "float32"),
        "down": 0.2 * jax.random.normal(keys[1], down, "float32"),
    }
    return weights, jax.random.normal(keys[2], (batch, width), dtype)


def large(layers=8, width=4096):
    return jax.eval_shape(lambda: arguments(layers, width, 8 * 2048, "bfloat16"))


def partitioned(*more, fn=loss, gather="shared"):
    tactics = [mw.fsdp("data", min_elements=0), *more]
    return mw.partition(jax.value_and_grad(fn), MESH, tactics, gather=gather)


@pytest.mark.parametrize(
    ("layers", "dtype", "gather"),
    [(2, "float32", "shared"), (2, "float32", "at_use"), (3, "bfloat16", "shared")],
)
def test_values_and_gradients_are_those_of_one_device(layers, dtype, gather):
    args = arguments(layers, dtype=dtype)
    before = partitioned(gather=gather).plan(*args).counts["all_gather"]
    step = partitioned(AHEAD, gather=gather)
    loops = [op for op in step.plan(*args).decided.lowered.program.ops if op.bodies]
    assert [op.params["unroll"] for op in loops] == [2, 2]
    assert step.plan(*args).counts["all_gather"] == before + before // layers
    assert step.check(*args).ok


def test_a_loop_that_runs_backward_gathers_the_layer_before():
    step = partitioned(AHEAD, fn=lambda w, x: loss(w, x, reverse=True))
    assert step.check(*arguments()).ok


def test_a_body_gathers_only_for_the_next_iteration():
    """No product of a body reads, however indirectly, what the body gathers."""
    program = partitioned(AHEAD).plan(*arguments()).decided.lowered.program
    for loop in (op for op in program.ops if op.kind == "scan"):
        (body,) = loop.bodies
        reached, gathers = set(), 0
        for op in body.ops:
            if op.kind == "all_gather":
                gathers += 1
                reached.update(op.results)
            elif not reached.isdisjoint(op.operands):
                reached.update(op.results)
                assert op.kind != "dot_general"
        assert gathers == 2


def test_other_readers_of_a_slice_keep_it():
    """The sum of squares of weights is computed from parts, without a gather."""

    def decayed(weights, x):
        def layer(x, w):
            return jnp.tanh(x @ w), jnp.sum(w**2)

        x, squares = jax.lax.scan(layer, x, weights)
        return jnp.mean(x**2) + jnp.sum(squares)

    args = jnp.ones((3, 16, 16)) / 16, jnp.ones((16, 16))
    step = partitioned(AHEAD, fn=decayed)
    assert "one iteration ahead" in str(
        [c.reason for c in step.plan(*args).collectives]
    )
    assert step.check(*args).ok


def test_an_unrolled_program_has_nothing_to_gather_ahead():
    def unrolled(weights, x):
        return jnp.mean((x @ weights) ** 2)

    with pytest.raises(
        TacticError, match=r"no loop that gathers.*put zero\(3\) or fsdp"
    ):
        partitioned(AHEAD, fn=unrolled).plan(jnp.ones((16, 16)), jnp.ones((16, 16)))


def test_one_iteration_has_no_next_one():
    with pytest.raises(TacticError, match="the loop has no second iteration"):
        partitioned(AHEAD).plan(*arguments(layers=1))


def test_gathers_in_a_rematted_region_stay_and_the_plan_says_why():
    def rematted(weights, x):
        layer = jax.checkpoint(lambda x, w: (jnp.tanh(jnp.tanh(x @ w) @ w.T), None))
        return jnp.mean(jax.lax.scan(layer, x, weights)[0] ** 2)

    args = jnp.ones((3, 16, 16)) / 16, jnp.ones((16, 16))
    step = partitioned(AHEAD, fn=rematted, gather="at_use")
    told = " ".join(map(str, step.plan(*args).steps[-1].refused))
    assert "its body is that of a remat" in told
    assert step.check(*args).ok


def test_a_loop_without_order_keeps_its_gathers():
    """The iterations of a map depend on each other in nothing."""

    def mapped(weights, x):
        return jnp.mean(jax.lax.map(lambda w: jnp.tanh(x @ w), weights) ** 2)

    args = jnp.ones((3, 16, 16)) / 16, jnp.ones((16, 16))
    with pytest.raises(TacticError, match="no value that the loop carries depends"):
        mw.partition(mapped, MESH, [mw.fsdp("data", min_elements=0), AHEAD]).plan(*args)


@pytest.mark.parametrize("machine", ["tpu-v5e", "tpu-v4", "h100"])
@pytest.mark.parametrize("width", [512, 4096])
def test_with_a_machine_no_step_is_slower(machine, width):
    args = large(width=width)
    tactic = mw.overlap("data", products=False, ahead=True, machine=machine)
    before = partitioned().plan(*args).on(machine)
    after = partitioned(tactic).plan(*args).on(machine)
    assert after.step_time_s <= before.step_time_s


def test_the_first_gather_of_an_iteration_runs_beside_the_one_before():
    tactic = mw.overlap("data", products=False, ahead=True, machine="tpu-v5e")
    before = partitioned().plan(*large()).on("tpu-v5e")
    after = partitioned(tactic).plan(*large()).on("tpu-v5e")
    exposed = "all_gather exposed"
    assert after.breakdown[exposed] < 0.4 * before.breakdown[exposed]
    assert after.step_time_s < 0.97 * before.step_time_s
    assert after.steps[-1].refused  # the second gather of an iteration has other work


def test_a_gather_with_which_the_step_is_slower_is_refused(monkeypatch):
    def steps_s(state, _):
        seconds = 1.0 + 0.1 * len(state.ahead)
        return dict.fromkeys(Gather, seconds)

    monkeypatch.setattr(ahead_module, "step_times", steps_s)
    tactic = mw.overlap("data", products=False, ahead=True, machine="tpu-v5e")
    plan = partitioned(tactic).plan(*large())
    assert plan.counts == partitioned().plan(*large()).counts
    assert "1100 ms with it one ahead" in str(plan.steps[-1].refused[0])


def test_machines_whose_gathers_wait_keep_them():
    tactic = mw.overlap("data", products=False, ahead=True, machine="cpu")
    plan = partitioned(tactic).plan(*arguments())
    assert plan.counts == partitioned().plan(*arguments()).counts
    assert "do not run beside products" in str(plan.steps[-1].refused[0])


def test_the_text_of_the_tactic_is_its_call():
    assert str(AHEAD) == "overlap('data', products=False, ahead=True)"
    assert parse_tactics(str(AHEAD)) == (AHEAD,)


def test_a_saved_plan_keeps_the_gathers_ahead():
    plan = partitioned(AHEAD).plan(*arguments())
    again = mw.Plan.from_json(plan.to_json())
    step = mw.partition(jax.value_and_grad(loss), again)
    assert step.plan(*arguments()).counts == plan.counts
    assert step.check(*arguments()).ok


def test_the_trace_and_the_report_show_which_gathers_run_ahead():
    tactics = [AHEAD, mw.overlap("data", products=False, combine_bytes=2**20)]
    plan = partitioned(*tactics).plan(*arguments()).on("tpu-v5e")
    spans = [e for e in trace_events([plan]) if e["ph"] == "X"]
    gathers = {e["name"]: e["args"]["reason"] for e in spans if "ahead" in e["name"]}
    assert list(gathers) == ["all_gather ahead of 2 values"]
    (reason,) = gathers.values()
    assert "gathered one iteration ahead (overlap)" in reason
    assert "all_gather ahead of 2 values" in make_page(plan)
