"""Searches for a model and an accelerator together, and the command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from meshwright.cli.main import app
from meshwright.codesign import accelerator as acc
from meshwright.codesign import joint, nas
from meshwright.errors import AcceleratorError
from meshwright.machine import load_machine

FILE = str(Path(__file__).parents[1] / "nas" / "space_module.py")
EDGE = joint.TEMPLATES["edge"]


def run(*arguments: object):
    return CliRunner().invoke(app, ["codesign", FILE, *map(str, arguments)])


def test_the_baseline_of_the_edge_template_is_the_preset():
    found, preset = EDGE.baseline_design, acc.Design.load("edge-tpu")
    assert found.chip.global_bytes_per_s == pytest.approx(
        preset.chip.global_bytes_per_s, rel=1e-3
    )
    rate = preset.chip.global_bytes_per_s
    assert found.changed(global_bytes_per_s=rate).chip == preset.chip


def test_figures_of_a_pair_are_those_of_both_halves():
    front = joint.search(FILE, trials=6, seed=1)
    point = front.points[0]
    trained = nas.SpaceFile(FILE).evaluate
    found = acc.evaluate(
        EDGE.design(point.candidate["chip"]), *trained.target(point.candidate["model"])
    )
    assert point.values["energy_j"] == pytest.approx(found.energy_j)
    assert point.values["latency_s"] == pytest.approx(found.seconds)
    figures = trained(point.candidate["model"])
    assert point.values["accuracy"] == figures["accuracy"]


def test_pairs_keep_the_area_of_the_baseline_and_the_latency():
    front = joint.search(FILE, trials=12, latency_s=3e-6, engine="random")
    area = EDGE.baseline_design.area_mm2
    assert front.points
    for point in front.points:
        assert point.values["area_mm2"] <= area
        assert point.values["latency_s"] <= 3e-6


def test_the_least_energy_at_an_accuracy_starts_from_known_models():
    known = {"width": 4, "layers": 1}
    front = joint.search(FILE, trials=6, first=[known], least_accuracy=0.0)
    assert front.front.trials[0].candidate == {"model": known, "chip": EDGE.baseline}
    energies = [t.values["energy_j"] for t in front.front.trials if t.is_feasible]
    assert [point.values["energy_j"] for point in front.points] == [min(energies)]
    none = joint.search(FILE, trials=3, least_accuracy=1.01)
    assert not none.points


@pytest.mark.parametrize("half", ["model", "chip"])
def test_one_half_alone_is_searched(half):
    fixed = {"model": {"width": 4, "layers": 1}, "chip": EDGE.baseline}[half]
    front = joint.search(FILE, trials=4, **{half: fixed})
    assert all(trial.candidate[half] == fixed for trial in front.front.trials)


def test_a_search_writes_its_pairs_and_goes_on(tmp_path):
    out = tmp_path / "joint"
    first = run("--trials", 3, "--out", out)
    assert first.exit_code == 0, first.output
    again = run("--trials", 8, "--resume", out, "--json")
    assert again.exit_code == 0, again.output
    whole = joint.search(FILE, trials=8)
    assert json.loads(again.stdout) == json.loads(whole.to_json())
    for point in whole.points:
        pair = out / f"pair-{point.number:05d}"
        assert load_machine(pair / "design.toml").accelerator
        assert json.loads((pair / "candidate.json").read_text()) == point.candidate


def test_a_limit_that_none_keeps_and_wrong_words_are_said():
    assert run("--trials", 2, "--area-mm2", 0.1).exit_code == 1
    with pytest.raises(AcceleratorError, match="there are edge"):
        joint.search(FILE, template="cloud")
    with pytest.raises(AcceleratorError, match="one of energy, latency, area"):
        joint.search(FILE, objective="speed")
