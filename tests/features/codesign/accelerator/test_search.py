"""Searches for a design: caps, resumption, and the command line."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from meshwright.codesign import accelerator as acc
from meshwright.errors import AcceleratorError, SearchError
from meshwright.features.codesign.accelerator.command import accelerator_command
from meshwright.features.codesign.accelerator.search.space import (
    design_of,
    known_designs,
)

PROGRAM = """
import jax
import jax.numpy as jnp

def small(batch=8):
    def fn(weights, x):
        for w in weights:
            x = jax.nn.relu(x @ w)
        return x
    shape = jax.ShapeDtypeStruct((256, 256), jnp.bfloat16)
    return fn, ([shape] * 2, jax.ShapeDtypeStruct((batch, 256), jnp.bfloat16))

def wide(batch=8):
    fn, (_, x) = small(batch)
    return fn, ([jax.ShapeDtypeStruct((256, 8192), jnp.bfloat16)], x)

def fixed():
    return small(8)
"""


@pytest.fixture
def target(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    return f"{tmp_path}/program.py:small"


def run(*arguments):
    return CliRunner().invoke(accelerator_command, [str(a) for a in arguments])


@pytest.mark.parametrize("engine", ["random", "ageing", "memetic"])
def test_the_best_design_keeps_its_caps(target, engine):
    caps = {"area_mm2": 100.0, "tdp_w": 60.0}
    found = acc.search_design([target], trials=40, engine=engine, **caps)
    assert found.design.area_mm2 <= 100
    assert found.design.tdp_w <= 60
    assert all(trial.is_feasible for trial in found.front.trials)
    best = max(t.values["perf_per_tdp"] for t in found.front.trials)
    assert found.trial.values["perf_per_tdp"] == best


def test_a_search_begins_with_known_designs_within_the_caps(target):
    base = acc.die_shrunk()
    known = list(known_designs(base))
    found = acc.search_design([target], trials=6, tdp_w=base.tdp_w, engine="random")
    within = [c for c in known if design_of(c, base).tdp_w <= base.tdp_w]
    assert 0 < len(within) < len(known)
    tried = [trial.candidate for trial in found.front.trials]
    assert tried[: len(within)] == within


def test_the_baseline_is_worth_one(target):
    from meshwright.features.codesign.accelerator.search.programs import TracedTargets
    from meshwright.features.codesign.accelerator.search.worth import Worth

    base = acc.die_shrunk()
    fixed = TracedTargets([target])
    worth = Worth(fixed, base)
    batches = [worth.of(base.changed(batch=b))["perf_per_tdp"] for b in (1, 8, 64, 256)]
    assert max(batches) == pytest.approx(1)
    several = TracedTargets([target, target.replace("small", "wide")])
    assert Worth(several, base).of(base)["perf_per_tdp"] == pytest.approx(1)
    mixed = TracedTargets([target, target.replace("small", "fixed")])
    of_many = base.changed(batch=64)
    assert Worth(mixed, of_many).of(of_many)["perf_per_tdp"] == pytest.approx(1)


def test_each_of_several_programs_has_its_best_batch(target):
    from meshwright.features.codesign.accelerator.search.programs import TracedTargets

    targets = [target, target.replace("small", "wide")]
    found = acc.search_design(targets, trials=4, engine="random")
    assert "batch" not in found.trial.candidate
    assert found.design.chip.batch in found.batches
    programs = TracedTargets(targets)
    for number, chosen in enumerate(found.batches):
        rates = {
            batch: batch
            / acc.evaluate_workload(found.design, programs.at(batch)[number]).seconds
            for batch in (1, 8, 64, 256)
        }
        assert rates[chosen] == max(rates.values())


def test_batches_are_said_where_they_are_free(target, tmp_path):
    arguments = ("--trials", 3, "--engine", "random", "--json")
    targets = target, target.replace("small", "wide")
    out = tmp_path / "two"
    found = json.loads(run("search", *targets, *arguments, "--out", out).output)
    assert len(found["batches"]) == 2
    page = (out / "page.html").read_text()
    assert all(f"{batch} at once" in page for batch in found["batches"])
    fixed = run("search", target.replace("small", "fixed"), *arguments)
    assert json.loads(fixed.output)["batches"] == []
    design = out / "design.toml"
    few, many = (
        json.loads(run("eval", design, target, "--batch", n, "--json").output)
        for n in (1, 64)
    )
    assert few[0]["dram_bytes"] < many[0]["dram_bytes"]
    missed = run("eval", design, target.replace("small", "fixed"), "--batch", 2)
    assert "takes no batch" in str(missed.exception)


def test_an_impossible_cap_says_what_would_be_needed(target):
    with pytest.raises(
        AcceleratorError, match=r"area_mm2 0.5 \(the least of 10 trials"
    ):
        acc.search_design([target], trials=10, area_mm2=0.5)
    missed = run("search", target, "--trials", 10, "--area-mm2", 0.5)
    assert missed.exit_code == 1


def test_a_search_goes_on_to_the_same_design(target, tmp_path):
    whole = acc.search_design([target], trials=20, seed=5)
    out = tmp_path / "found"
    first = run("search", target, "--trials", 8, "--seed", 5, "--out", out)
    assert first.exit_code == 0, first.output
    again = run(
        "search", target, "--trials", 20, "--seed", 5, "--resume", out, "--json"
    )
    assert again.exit_code == 0, again.output
    assert json.loads(again.stdout)["candidate"] == whole.trial.candidate
    assert acc.Design.load(out / "design.toml").chip == whole.design.chip
    page = (out / "page.html").read_text()
    assert "Where time goes" in page


def test_figures_as_json(target):
    found = run("eval", "edge-tpu", target, "--json")
    (entry,) = json.loads(found.stdout)
    assert entry["seconds"] == pytest.approx(
        sum(op["seconds"] for op in entry["by_op"])
    )
    assert entry["energy_j"] == pytest.approx(sum(entry["by_level_j"].values()))
    mapped = run(
        "map", "tpu-v4i", "--gemm", "512x1024x768", "--dataflow", "os", "--json"
    )
    assert json.loads(mapped.stdout)["gemm"] == [512, 1024, 768]


def test_logs_are_written_for_each_program(target, tmp_path):
    found = run("log", target, "--designs", 20, "--out", tmp_path / "logs")
    assert found.exit_code == 0, found.output
    lines = (tmp_path / "logs" / "small.csv").read_text().splitlines()
    assert len(lines) == 21


def test_a_journal_of_other_programs_is_refused(target, tmp_path):
    journal, other = tmp_path / "journal.jsonl", tmp_path / "other.py"
    other.write_text(Path(target.partition(":")[0]).read_text().replace("256", "192"))
    acc.search_design([target], trials=3, journal=journal)
    with pytest.raises(SearchError, match="evaluation, in programs"):
        acc.search_design(
            [f"{other}:{target.partition(':')[2]}"], trials=3, journal=journal
        )
    with pytest.raises(SearchError, match="evaluation, in baseline"):
        acc.search_design(
            [target], trials=3, journal=journal, base=acc.Design.load("tpu-v4i")
        )


def test_a_program_that_no_design_runs_says_why(tmp_path):
    same = tmp_path / "same.py"
    same.write_text(
        "import jax\n\ndef model():\n"
        "    return (lambda x: x), (jax.ShapeDtypeStruct((3,), 'float32'),)\n"
    )
    with pytest.raises(AcceleratorError, match="computes nothing"):
        acc.search_design([f"{same}:model"], trials=3)


def test_a_log_of_another_program_is_left_alone(target, tmp_path):
    place, name = target.split(":")
    other = tmp_path / "other.py"
    other.write_text(Path(place).read_text().replace("256", "192"))
    args = ["log", "--designs", "3", "--out", str(tmp_path / "logs")]
    assert run(*args, target, f"{other}:{name}").exit_code != 0
    assert not list((tmp_path / "logs").glob("*.csv"))
    assert run(*args, target).exit_code == 0
    before = {path: path.read_text() for path in (tmp_path / "logs").iterdir()}
    refused = run(*args, f"{other}:{name}")
    assert "is the log of another program" in str(refused.exception)
    assert before == {path: path.read_text() for path in (tmp_path / "logs").iterdir()}
