"""Designs as TOML, their area and power, and machines made from them."""

import pytest

import meshwright as mw
from meshwright.codesign import accelerator as acc
from meshwright.errors import AcceleratorError, MachineError
from meshwright.features.codesign.accelerator.cost.figures import (
    multiply_add_pj,
    scaled,
    sram_pj,
)
from meshwright.machine import load_machine


@pytest.mark.parametrize("name", acc.design_names())
def test_a_saved_design_is_a_machine_and_loads_again(name, tmp_path):
    design = acc.Design.load(name)
    design.save(tmp_path / "design.toml")
    assert acc.Design.load(tmp_path / "design.toml").chip == design.chip
    machine = load_machine(tmp_path / "design.toml")
    assert machine.accelerator == design.chip
    rate = machine.chip.flops_per_s[design.chip.number]
    assert rate == pytest.approx(design.chip.flops_per_s)
    assert machine.chip.peak_w == pytest.approx(design.tdp_w)


def test_a_design_plans_as_any_other_machine(tmp_path):
    import jax
    import jax.numpy as jnp

    acc.Design.load("tpu-v4i").save(tmp_path / "found.toml")
    x = jax.ShapeDtypeStruct((512, 512), jnp.bfloat16)
    place = str(tmp_path / "found.toml")
    plan = mw.autoplan(lambda x: x @ x, (x,), machine=place, chips=4, budget_s=1)
    assert plan.figures.step_time_s > 0


def test_published_energies_are_kept_at_their_nodes():
    assert scaled((0.2, 0.07), 45) == pytest.approx(0.2)
    assert scaled((0.2, 0.07), 7) == pytest.approx(0.07)
    assert multiply_add_pj("float32", 7) == pytest.approx(1.31 + 0.38)
    assert sram_pj(1 << 20, 7) == pytest.approx(14 / 8)
    assert sram_pj(32 << 10, 45) == pytest.approx(20 / 8)
    assert sram_pj(128 << 20, 7) > sram_pj(1 << 20, 7)


def test_the_die_of_v4i_has_its_published_shares():
    cost = acc.Design.load("tpu-v4i").cost
    assert cost.area_mm2["arrays"] == pytest.approx(44, rel=0.01)
    assert cost.area_mm2["memory"] == pytest.approx(112, rel=0.01)
    assert 0 < cost.assumed_area < 1
    assert 0 < cost.assumed_power < 1


TEXT = acc.Design("edge", acc.Design.load("edge-tpu").chip).to_toml()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("pes = [4, 4]", "pes = [0, 4]", "from 1 to 256"),
        ("pes = [4, 4]", "pes = [4]", "a list of 2"),
        ('"lpddr4"', '"sram"', "wanted one of hbm2"),
        ("clock_hz = 800000000.0\nl1", "clock_hz = -1.0\nl1", "wanted 0 or more"),
        ("vector_lanes = 16", "", "lacks vector_lanes"),
        ("vector_lanes = 16", "vector_lane = 16", "unknown entry"),
        ("global_bytes = 33554432", "global_bytes = 999999999", "at most 268435456"),
    ],
)
def test_faults_of_a_design_are_named(old, new, said):
    assert old in TEXT
    with pytest.raises(MachineError, match=said):
        acc.Design.parse(TEXT.replace(old, new), "bad")


def test_an_unknown_design_is_named_with_those_that_there_are():
    with pytest.raises(AcceleratorError, match="there are edge-tpu"):
        acc.Design.load("tpu-v9")
