"""`autoplan` with product loops: faster plans, equal numbers, and no work without need."""

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
        before = planned(shapes(128, 2048, 12288), **asked)
    return before, planned(shapes(128, 2048, 12288), **asked)


def test_a_wide_layer_of_megatron_is_faster_with_loops(wide):
    before, after = wide
    assert not before.counts["permute"]
    assert after.counts["permute"]
    assert before.step_time_s / after.step_time_s > 1.05


def test_the_plan_says_that_it_has_loops(wide):
    _, after = wide
    assert after.search.candidates[0].name.endswith(OVERLAPPED)
    assert any(str(tactic).startswith("overlap(") for tactic in after.tactics)
    reasons = [row.reason for row in after.collectives if row.kind == "permute"]
    assert reasons
    assert all("beside a part of the product (overlap)" in each for each in reasons)
    again = mw.Plan.from_json(after.to_json())
    assert "mw.overlap('model'" in again.code
    assert OVERLAPPED in after.report()


def test_a_plan_read_again_has_the_same_loops_on_any_machine(wide):
    _, after = wide
    again = mw.Plan.from_json(after.to_json())
    step = mw.partition(jax.grad(layer), again)
    made = step.plan(*shapes(128, 2048, 12288))
    assert made.counts == after.counts


def test_loops_chosen_by_a_search_run_and_equal_one_device(wide):
    """The wide layer's tactics, applied to a narrow one, whose ops have other types."""
    _, after = wide
    loops = [t for t in after.tactics if str(t).startswith("overlap(")]
    short = [
        mw.overlap(t.axis, at=[name.rsplit(" bf16", 1)[0] for name in t.at])
        for t in loops
    ]
    step = mw.partition(jax.grad(layer), {"data": 2, "model": 4}, [*MEGATRON, *short])
    rng = np.random.default_rng(0)
    args = jax.tree.map(
        lambda leaf: jnp.asarray(rng.standard_normal(leaf.shape), leaf.dtype),
        shapes(4, 16, 8, "float32"),
    )
    assert step.plan(*args).counts["permute"]
    assert step.check(*args).ok


@pytest.mark.parametrize(
    ("machine", "chips"), [("tpu-v4", 1), ("cpu-host", 8), ("h100", 8)]
)
def test_no_loops_are_searched_for_where_none_can_pay(monkeypatch, machine, chips):
    calls = loop_searches(monkeypatch)
    found = planned(shapes(64, 128, 256), machine, chips=chips)
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


def test_names_of_ops_select_their_loops():
    args = shapes(8, 128, 256)
    mesh = {"data": 2, "model": 4}
    every = mw.partition(jax.grad(layer), mesh, [*MEGATRON, mw.overlap("model")])
    some = [*MEGATRON, mw.overlap("model", at=["x"])]
    with pytest.raises(TacticError, match="no collective of 'x' can become a loop"):
        mw.partition(jax.grad(layer), mesh, some).plan(*args)
    with pytest.raises(TacticError, match="wanted a list of names"):
        mw.overlap("model", at="x")
    assert every.plan(*args).counts["permute"]
    assert load_machine("tpu-v4", 8).num_devices == 8
