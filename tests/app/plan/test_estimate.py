"""What a plan takes on a machine: relations that papers report, and conservation."""

from dataclasses import replace
from functools import cache

import jax
import pytest

import meshwright as mw
from meshwright.machine import load_machine
from meshwright.predict.energy import find_location
from meshwright.predict.estimate import estimate
from meshwright.predict.figures import spending
from zoo import gpt

CONFIG = replace(gpt.T32, layers=2)


@cache
def estimated(schedule, machine="tpu-v3"):
    """PartIR's T32, cut to two layers, on 32 devices in a mesh of 8 by 4."""
    mesh = {"batch": 8, "model": 4}
    step = mw.partition(gpt.train_step, mesh, gpt.schedules[schedule], gather="at_use")
    return estimate(step.decide(*gpt.shapes(CONFIG)), load_machine(machine, 32))


def test_zero_2_needs_less_memory_in_the_same_time():
    """PartIR, Table 4: an all-reduce becomes a reduce-scatter and an all-gather.

    In the paper it takes exactly as long; here half of it overlaps with the optimizer.
    """
    both, zero_2 = estimated("bp+mp"), estimated("bp+mp+z2")
    assert zero_2.step_time_s == pytest.approx(both.step_time_s, rel=0.06)
    assert zero_2.peak_memory_bytes < both.peak_memory_bytes


def test_zero_3_needs_less_memory_than_zero_2():
    assert (
        estimated("bp+mp+z3").peak_memory_bytes
        < estimated("bp+mp+z2").peak_memory_bytes
    )


def test_model_parallelism_alone_is_slower_and_larger():
    alone, data = estimated("mp"), estimated("bp")
    assert alone.step_time_s > 1.5 * data.step_time_s
    assert alone.peak_memory_bytes > data.peak_memory_bytes


def test_the_breakdown_adds_up_to_the_step():
    found = estimated("bp+mp+z3")
    filled = sum(
        s for name, s in found.breakdown.items() if not name.endswith("hidden")
    )
    assert filled == pytest.approx(found.step_time_s)
    assert 0 < found.used.mfu < 1


def test_a_step_has_a_price_and_a_footprint():
    found = spending(load_machine("tpu-v4", 32), 0.5, find_location("iowa"))
    assert found.cost_usd == pytest.approx(0.5 / 3600 * 32 * 3.22)
    assert found.energy_j == pytest.approx(0.5 * 32 * 170 * 1.11)
    assert found.co2e_g == pytest.approx(found.energy_j / 3.6e6 * 478)


def test_a_figure_that_the_machine_lacks_is_none():
    iowa = find_location("iowa")
    without_power = spending(load_machine("tpu-v5e", 32), 0.5, iowa)
    assert (without_power.energy_j, without_power.co2e_g) == (None, None)
    assert spending(load_machine("a100-80g", 32), 0.5, iowa).cost_usd is None


def test_an_empty_step_has_no_flop_utilisation():
    step = mw.partition(lambda x: x.reshape(-1), {"data": 8})
    plan = step.plan(jax.ShapeDtypeStruct((8, 8), "float32"))
    assert plan.on("tpu-v5e").mfu == 0
