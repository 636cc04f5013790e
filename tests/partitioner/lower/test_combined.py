"""Small collectives along an axis are combined into one by `overlap`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import meshwright as mw
from meshwright.app.report.trace_events import trace_events
from meshwright.app.tactic_text import parse_tactics
from meshwright.errors import TacticError
from meshwright.machine import parse_machine

MESH = {"data": 4}
SIZES = [(8, 6), (6, 8), (8, 12), (12, 4)]


def loss(ws, x):
    for w in ws[:-1]:
        x = jnp.tanh(x @ w)
    return jnp.mean((x @ ws[-1]) ** 2)


def step(state, batch):
    """Gradient descent with momentum, so that ZeRO has something to cut."""
    ws, ms = state
    grads = jax.grad(loss)(ws, batch)
    ms = [0.9 * m + g for m, g in zip(ms, grads, strict=True)]
    return [w - 0.1 * m for w, m in zip(ws, ms, strict=True)], ms


def arguments():
    rng = np.random.default_rng(0)
    ws = [rng.standard_normal(size, np.float32) for size in SIZES]
    batch = rng.standard_normal((16, 8), np.float32)
    return (ws, [np.zeros_like(w) for w in ws]), batch


def combined(size=2**20):
    return mw.overlap("data", products=False, combine_bytes=size)


def partitioned(*tactics):
    return mw.partition(step, MESH, [mw.data_parallel("data", "batch"), *tactics])


@pytest.mark.parametrize(
    "tactics",
    [[], [mw.zero(2, "data", min_elements=0)], [mw.zero(3, "data", min_elements=0)]],
)
def test_combined_collectives_are_one_of_a_kind_and_compute_the_same(tactics):
    apart, together = partitioned(*tactics), partitioned(*tactics, combined())
    before = apart.plan(*arguments()).counts
    after = together.plan(*arguments()).counts
    assert all(after[kind] < n for kind, n in before.items() if n > 1)
    assert after["all_reduce"] + after["reduce_scatter"] == 1
    assert together.check(*arguments()).ok


def test_a_plan_says_how_many_values_a_collective_has():
    (found,) = partitioned(combined()).plan(*arguments()).collectives
    assert "together with 3 more values (" in found.reason


def test_the_timeline_shows_how_many_values_a_collective_has_and_which():
    plan = partitioned(combined()).plan(*arguments()).on(host())
    events = trace_events([plan])
    (span,) = [e for e in events if e["name"] == "all_reduce of 4 values"]
    assert "together with 3 more values (3 x transpose (" in span["args"]["reason"]


def test_buckets_are_no_larger_than_asked_for():
    plan = partitioned(combined(700)).plan(*arguments())
    assert 1 < plan.counts["all_reduce"] < len(SIZES)
    largest = max(8 * 12 * 4, 700)
    assert all(found.bytes <= largest for found in plan.collectives)


def test_a_sum_that_the_next_product_needs_does_not_wait():
    """Megatron's sums depend on each other, so that each stays on its own."""

    def two_layers(x, ws):
        for up, down in ws:
            x = x + jnp.tanh(x @ up) @ down
        return x

    ws = [(jnp.ones((8, 16)), jnp.ones((16, 8)))] * 2
    tactics = [mw.megatron("data"), combined()]
    made = mw.partition(two_layers, MESH, tactics)
    assert made.plan(jnp.ones((4, 8)), ws).counts["all_reduce"] == 2


def host():
    """Four devices of a host whose collectives wait for threads that meet."""
    text = """
    name = "host"
    title = "4 virtual devices"
    compiler = "cpu"
    [chip]
    vector_flops_per_s = {value = 1e10, source = "made up"}
    hbm_bytes = {value = 3e9, source = "made up"}
    usable_bytes = {value = 3e9, source = "made up"}
    hbm_bytes_per_s = {value = 1e10, source = "made up"}
    on_chip_bytes = {value = 8192, source = "made up"}
    launch_s = {value = 1e-7, source = "made up"}
    [chip.flops_per_s]
    float32 = {value = 1e10, source = "made up"}
    bfloat16 = {value = 1e10, source = "made up"}
    [[levels]]
    name = "devices"
    kind = "switch"
    extents = {value = [4], source = "made up"}
    link_bytes_per_s = {value = 2e9, source = "made up"}
    latency_s = {value = 1e-4, source = "made up"}
    """
    return parse_machine(text, "host", 4)


def test_combined_collectives_are_faster_where_latency_decides():
    tactics = [mw.zero(2, "data", min_elements=0)]
    apart = partitioned(*tactics).plan(*arguments()).on(host())
    together = partitioned(*tactics, combined()).plan(*arguments()).on(host())
    assert together.step_time_s < 0.5 * apart.step_time_s


def test_all_reduces_that_the_cpu_compiler_combines_have_one_latency():
    plan = partitioned().plan(*arguments()).on(host())
    assert plan.counts["all_reduce"] == len(SIZES)
    together = partitioned(combined()).plan(*arguments()).on(host())
    waiting_s = plan.breakdown["all_reduce exposed"]
    assert waiting_s == pytest.approx(together.breakdown["all_reduce exposed"])


def test_autoplan_combines_what_the_cpu_compiler_leaves_apart():
    given = [mw.data_parallel("data", "batch"), mw.zero(2, "data", min_elements=0)]
    plan = mw.autoplan(
        step, arguments(), machine=host(), mesh=MESH, tactics=given, budget_s=3
    )
    assert any("combine_bytes" in str(tactic) for tactic in plan.tactics)
    assert plan.counts["all_gather"] == plan.counts["reduce_scatter"] == 1


def test_the_tactic_is_printed_as_the_call_that_makes_it():
    assert str(combined(64)) == "overlap('data', products=False, combine_bytes=64)"
    assert parse_tactics(str(combined(64))) == (combined(64),)


def test_nothing_to_do_and_negative_sizes_are_refused():
    with pytest.raises(TacticError, match="leaves it nothing to do"):
        mw.overlap("data", products=False)
    with pytest.raises(TacticError, match="wanted 0 or more bytes"):
        mw.overlap("data", combine_bytes=-1)
