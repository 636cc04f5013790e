"""`autoplan` with product loops: faster plans, equal numbers, and no work without need."""

import re
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import meshwright as mw
from meshwright.errors import TacticError
from meshwright.machine import load_machine
from meshwright.planner.driver import overlapping
from meshwright.planner.driver.overlapping import OVERLAPPED
from meshwright.planner.overlap.loop_search import LoopSearch

MEGATRON = [
    mw.data_parallel("data", "x"),
    mw.megatron("model"),
    mw.sequence_parallel("model"),
]


def layer(weights, x):
    """The mean square of a feed-forward layer."""
    hidden = jax.nn.relu(jnp.einsum("bsd,df->bsf", x, weights["up"]))
    y = x + jnp.einsum("bsf,fd->bsd", hidden, weights["down"])
    return jnp.mean(y.astype(jnp.float32) ** 2)


def shapes(batch, sequence, width, dtype="bfloat16"):
    shape = jax.ShapeDtypeStruct
    up, down = shape((width, 4 * width), dtype), shape((4 * width, width), dtype)
    return {"up": up, "down": down}, shape((batch, sequence, width), dtype)


def planned(args, machine="tpu-v4", **options):
    return mw.autoplan(jax.grad(layer), args, machine=machine, **options)


def loop_searches(monkeypatch):
    """A list that gets an entry for each plan whose loops are searched for."""
    calls = []
    tactics = LoopSearch.tactics

    def counted(search, work):
        calls.append(work)
        return tactics(search, work)

    monkeypatch.setattr(LoopSearch, "tactics", counted)
    return calls


@pytest.fixture(scope="module")
def wide():
    """The plan for a wide layer of Megatron on 64 TPU v4, with and without loops."""
    asked = {"mesh": {"data": 16, "model": 4}, "tactics": MEGATRON}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(overlapping, "_TRIED", 0)
        before = planned(shapes(128, 2048, 8192), **asked)
    return before, planned(shapes(128, 2048, 8192), **asked)


def test_a_wide_layer_of_megatron_is_faster_with_loops(wide):
    before, after = wide
    assert not before.counts["permute"]
    assert after.counts["permute"]
    assert before.step_time_s / after.step_time_s > 1.05


def test_the_plan_says_that_it_has_loops(wide, tmp_path):
    _, after = wide
    assert after.search.candidates[0].name.endswith(OVERLAPPED)
    assert any(str(tactic).startswith("overlap(") for tactic in after.tactics)
    reasons = [row.reason for row in after.collectives if row.kind == "permute"]
    assert reasons
    assert all("beside a part of the product (overlap)" in each for each in reasons)
    again = mw.Plan.from_json(after.to_json())
    assert "mw.overlap('model'" in again.code
    after.report(tmp_path / "plan.html")
    assert OVERLAPPED in (tmp_path / "plan.html").read_text()


def test_a_plan_read_again_has_the_same_loops_on_any_machine(wide):
    _, after = wide
    again = mw.Plan.from_json(after.to_json())
    step = mw.partition(jax.grad(layer), again)
    made = step.plan(*shapes(128, 2048, 8192))
    assert made.counts == after.counts


def slow(machine, narrower, factor=1e3):
    """A machine on which a narrow layer waits for links as a wide one does on another.

    narrower: ratio of the widths. The flops of products per byte fall by this ratio, so
    that the matrix unit is slower by it; all but latencies is slower by `factor`.
    """
    levels = {
        level: replace(level, link_bytes_per_s=level.link_bytes_per_s / factor)
        for level in machine.levels
    }
    grid = tuple(replace(dim, level=levels[dim.level]) for dim in machine.grid)
    chip = replace(
        machine.chip,
        flops_per_s={
            k: v / factor / narrower for k, v in machine.chip.flops_per_s.items()
        },
        vector_flops_per_s=machine.chip.vector_flops_per_s / factor,
        hbm_bytes_per_s=machine.chip.hbm_bytes_per_s / factor,
        on_chip_bytes=0,
        placed_bytes=0,
        window_bytes=0,
    )
    levels = tuple(levels.values())
    return replace(machine, chip=chip, levels=levels, grid=grid)


def test_a_plan_with_loops_runs_and_equals_one_device():
    machine = slow(load_machine("tpu-v4", 8), narrower=64)
    args = shapes(16, 64, 128)
    found = planned(args, machine, mesh={"data": 2, "model": 4}, tactics=MEGATRON)
    assert found.search.candidates[0].name.endswith(OVERLAPPED)
    step = mw.partition(jax.grad(layer), found.mesh, found.tactics)
    rng = np.random.default_rng(0)
    args = jax.tree.map(
        lambda leaf: jnp.asarray(rng.standard_normal(leaf.shape), leaf.dtype), args
    )
    assert step.plan(*args).counts["permute"]
    assert step.check(*args).ok


@pytest.mark.parametrize(
    ("fn", "machine"),
    [(jax.grad(layer), "cpu"), (layer, "tpu-v4")],
    ids=["permutes run alone", "no gather is waited for"],
)
def test_no_loops_are_searched_for_where_none_can_pay(monkeypatch, fn, machine):
    calls = loop_searches(monkeypatch)
    options = {"machine": machine, "mesh": {"data": 8}, "tactics": MEGATRON[:1]}
    found = mw.autoplan(fn, shapes(64, 128, 256), **options)
    assert not calls
    assert not any(c.name.endswith(OVERLAPPED) for c in found.search.candidates)


def test_a_plan_is_the_same_if_no_loop_is_faster(monkeypatch):
    asked = {"mesh": {"data": 2, "model": 4}}
    args = shapes(8, 128, 256)
    calls = loop_searches(monkeypatch)
    with_loops = planned(args, **asked)
    assert calls
    monkeypatch.setattr(overlapping, "_TRIED", 0)
    without = planned(args, **asked)
    assert with_loops.tactics == without.tactics
    assert with_loops.step_time_s == without.step_time_s
    assert with_loops.search.candidates == without.search.candidates


def test_names_select_the_loops_and_a_wrong_name_is_refused():
    args, mesh = shapes(8, 128, 256), {"data": 2, "model": 4}

    def permutes(at):
        tactics = [*MEGATRON, mw.overlap("model", at=at)]
        return (
            mw.partition(jax.grad(layer), mesh, tactics).plan(*args).counts["permute"]
        )

    with pytest.raises(TacticError, match="no collective of 'x' can") as error:
        permutes(["x"])
    name = re.search(r"those of '([^']+)'", str(error.value))[1]
    assert 0 < permutes([name]) < permutes([])
    with pytest.raises(TacticError, match="wanted a list of names"):
        mw.overlap("model", at="x")
