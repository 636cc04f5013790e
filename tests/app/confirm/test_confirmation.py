"""Predicted figures compared with compiled ones, and plans that cannot be compiled."""

import json
import re

import jax
import jax.numpy as jnp
import pytest

import meshwright as mw
from meshwright.app.confirm.account import Account, CollectiveTotals
from meshwright.app.confirm.confirmation import Confirmation
from meshwright.errors import CompilerError, MachineError, PlanError
from meshwright.machine import load_machine
from meshwright.run.compilers.confirm import confirm
from tests.fake_compiler import install


@pytest.fixture(scope="module")
def plan():
    def step(w, xs):
        def layer(w, x):
            return w - 0.1 * jax.grad(lambda w: jnp.sum(jnp.tanh(x @ w) ** 2))(w), ()

        return jax.lax.scan(layer, w, xs)[0]

    partitioned = mw.partition(step, {"data": 8}, [mw.shard({"xs": 1}, axis="data")])
    return partitioned.plan(
        jax.ShapeDtypeStruct((256, 512), jnp.float32),
        jax.ShapeDtypeStruct((4, 1024, 256), jnp.float32),
    )


def test_predicted_figures_are_compared_with_those_of_the_compiler(plan, monkeypatch):
    install(monkeypatch)
    found = plan.confirm("h100")
    assert (found.machine, found.num_devices) == ("h100", 8)
    assert (
        found.predicted.peak_bytes
        == plan.on(load_machine("h100", 8)).figures.peak_memory_bytes
    )
    assert found.predicted.collectives["all_reduce"].runs == 4
    assert found.predicted.collectives["all_reduce"].num_bytes == 4 * 256 * 512 * 4
    assert found.predicted.collectives["all_reduce"].seconds > 0
    assert found.compiled.peak_bytes == 7000
    assert found.compiled.collectives == {"all_reduce": CollectiveTotals(1, 2048)}
    assert found.compiled.compute_s is None
    assert "all-reduce-start" in found.hlo
    assert found.hlo not in repr(found)


def test_tpu_and_gpu_stand_for_the_machine_that_the_plan_is_on(plan, monkeypatch):
    install(monkeypatch)
    placed = plan.on(mw.machine("tpu-v5e", chips=8))
    found = placed.confirm("tpu", full=True)
    assert found.machine == "tpu-v5e"
    assert found.compiled.compute_s == pytest.approx(3000 / 1.5e9)
    with pytest.raises(PlanError, match=r"a GPU, this one is on tpu-v5e; .*h100"):
        placed.confirm("gpu")
    with pytest.raises(PlanError, match=r"a TPU, this one is on no machine.*tpu-v6e"):
        plan.confirm("tpu")


def test_state_donated_on_a_machine_is_donated_for_the_compiler_too(plan, monkeypatch):
    install(monkeypatch)
    donated = []

    def record(step, *args):
        donated.append(step.donated)
        return confirm(step, *args)

    monkeypatch.setattr("meshwright.app.confirm.confirmation.confirm", record)

    def step(state, x):
        return {"w": state["w"] * x}

    partitioned = mw.partition(step, {"data": 8}, [mw.shard({"state.w": 0}, "data")])
    f32 = jax.ShapeDtypeStruct((64, 64), jnp.float32)
    mine = partitioned.plan({"w": f32}, f32)
    mine.on(mw.machine("h100", chips=8), donate_state=True).confirm("gpu")
    mine.confirm("h100", donate_state=True)
    mine.confirm("h100")
    mine.on("h100", donate_state=True).confirm("v100")
    assert donated == [(0,), (0,), (), (0,)]


def test_a_compiler_that_runs_out_of_memory_gives_the_memory_only(plan, monkeypatch):
    install(monkeypatch, "refuses")
    found = plan.confirm("tpu-v5e")
    assert found.compiled == Account(int(20.5 * 2**30), False, None, None, None)
    text = str(found)
    assert re.search(r"in 15.8 GiB +fits +DOES NOT FIT$", text, re.MULTILINE)
    assert re.search(r"FLOPs, loop bodies once +\S+ M +unknown$", text, re.MULTILINE)


def test_the_table_has_predicted_and_compiled_figures_side_by_side():
    found = Confirmation(
        "tpu-v5e", 8, 16.9e9,
        Account(8_000_000_000, True, 1.1e12, {
            "all_reduce": CollectiveTotals(3, 3000, 2e-3, 3e-3),
            "reduce_scatter": CollectiveTotals(1, 1000, 1e-3),
        }, 0.2),
        Account(10_000_000_000, True, 1e12, {
            "all_reduce": CollectiveTotals(4, 4000, None, 4e-3),
        }, 0.1),
        12.34, "HloModule",
    )  # fmt: skip
    assert str(found).splitlines() == [
        "tpu-v5e, 8 devices, compiled in 12.3 s",
        "on each device                     predicted          compiled  difference",
        "memory                              7.45 GiB          9.31 GiB     -20.0 %",
        "  in 15.7 GiB                           fits              fits",
        "FLOPs, loop bodies once               1.10 T            1.00 T     +10.0 %",
        "all_reduce                    2.93 KiB    x3    3.91 KiB    x4     -25.0 %",
        "  seconds on the links               2.00 ms           unknown",
        "  scheduler's estimate               3.00 ms           4.00 ms     -25.0 %",
        "reduce_scatter               0.977 KiB    x1         0 B",
        "  seconds on the links               1.00 ms               0 s",
        "all reductions                3.91 KiB    x4    3.91 KiB    x4      +0.0 %",
        "  seconds on the links               3.00 ms           unknown",
        "compute seconds                       200 ms            100 ms    +100.0 %",
    ]
    fields = json.loads(json.dumps(found.to_json()))
    assert fields["predicted"]["collectives"]["all_reduce"]["runs"] == 3
    assert "hlo" not in fields


def test_plans_that_cannot_be_compiled_are_refused_with_the_reason(plan):
    with pytest.raises(CompilerError, match="no ahead-of-time compiler for cpu"):
        plan.confirm("cpu")
    with pytest.raises(MachineError, match="there is no machine 'tpu-v9'"):
        plan.confirm("tpu-v9")
    with pytest.raises(PlanError, match="no program to compile"):
        mw.Plan.from_json(plan.to_json()).confirm("h100")


def test_a_machine_of_another_size_is_refused(plan, monkeypatch):
    install(monkeypatch)
    with pytest.raises(MachineError, match="has 8 devices, machine h100 16"):
        plan.confirm(mw.machine("h100", chips=16))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("package", "machine"), [("libtpu", "tpu-v5e"), ("jax_cuda13_plugin", "h100")]
)
def test_collectives_of_the_real_compilers_have_the_predicted_bytes(
    plan, package, machine
):
    pytest.importorskip(package, reason="needs the extra that installs it")
    found = plan.confirm(machine)
    moved = found.compiled.collectives["all_reduce"]
    assert moved.num_bytes == found.predicted.collectives["all_reduce"].num_bytes
    assert found.predicted.flops == pytest.approx(found.compiled.flops, rel=0.05)
    assert found.predicted.fits
    assert found.compiled.fits
