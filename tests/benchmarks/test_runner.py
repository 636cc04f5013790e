"""The runner finds every benchmark, README.md names it, and its record is whole."""

import json
import re
import subprocess
import sys
from collections import Counter

import pytest

from benchmarks import __main__ as runner
from benchmarks import places
from benchmarks.harness import Options, benchmark, option
from benchmarks.index import areas, scripts_of
from benchmarks.records import unit_of

SCRIPTS = [script for area in areas() for script in scripts_of(area)]
STANDALONE = {"omnimalloc_heights", "peer_convert", "pipeline_case", "version_case"}
"""Run by other scripts, under interpreters or checkouts without this package."""


def test_the_list_shows_every_script_with_its_summary(capsys):
    assert runner.main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    for script in SCRIPTS:
        assert f"  {script.name:20} {script.summary}" in lines
        assert script.summary


def test_every_module_that_can_be_run_is_a_script():
    runnable = {
        path.stem
        for path in places.HERE.glob("*/*.py")
        if '__name__ == "__main__"' in path.read_text(encoding="utf-8")
    }
    assert runnable - STANDALONE == {script.name for script in SCRIPTS}


def test_only_the_harness_parses_shared_arguments():
    for path in places.HERE.glob("*/*.py"):
        text = path.read_text(encoding="utf-8")
        assert "ArgumentParser" not in text, path
        assert not re.search(r'option\("--(seed|out|json|repeat)"', text), path


def test_readme_names_each_script_once_under_its_area():
    text = (places.HERE / "README.md").read_text(encoding="utf-8")
    found = {}
    for part in text.split("\n## ")[1:]:
        area, _, rows = part.partition("\n")
        found[area] = Counter(re.findall(r"^\| `(\w+)` \|", rows, re.MULTILINE))
    assert found == {
        area: Counter(script.name for script in scripts_of(area)) for area in areas()
    }


def test_readme_names_each_other_module():
    text = (places.HERE / "README.md").read_text(encoding="utf-8")
    scripts = {script.name for script in SCRIPTS}
    for area in areas():
        for path in (places.HERE / area).glob("*.py"):
            if path.stem not in scripts | {"__init__"}:
                assert text.count(f"`{path.name}`") == 1, path


def test_an_unknown_area_or_script_is_refused(capsys):
    assert runner.main(["nothing"]) == 2
    assert "no area 'nothing'; there are allocation," in capsys.readouterr().err
    assert runner.main(["search", "nothing"]) == 2
    assert "no script 'nothing' in search; it has autoplan," in capsys.readouterr().err


@benchmark(option("--size", type=int, default=2), seed=0)
def sample(options: Options) -> None:
    """A benchmark whose figures change from run to run."""
    rows = options.stored({"rows": {"old": {"step_s": 5.0}}})
    rows["rows"][f"size {options.size}"] = {"step_s": options.seed + 1.0, "nodes": 3}
    options.seed += 1
    options.save(rows)


def test_a_record_has_median_spread_and_unit_of_what_changed(tmp_path):
    out, records = tmp_path / "figures.json", tmp_path / "records.jsonl"
    out.write_text(json.dumps({"rows": {"old": {"step_s": 5.0}}}))
    sample(["--seed", "1", "--repeat", "2", "--out", str(out), "--json", str(records)])
    rows = {
        row["case"]: row for row in map(json.loads, records.read_text().splitlines())
    }
    step = rows["rows/size 2/step_s"]
    assert (step["value"], step["spread"], step["repeats"]) == (2.5, 1.0, 2)
    assert (step["unit"], rows["rows/size 2/nodes"]["unit"]) == ("s", None)
    assert json.loads(out.read_text())["rows"]["size 2"]["step_s"] == 2.0


@pytest.mark.parametrize(
    ("name", "unit"),
    [("a/step_s", "s"), ("hbm_bytes_per_s", "B/s"), ("a_bytes/3", "B"), ("gain", None)],
)
def test_a_unit_is_read_from_the_end_of_a_name(name, unit):
    assert unit_of(name) == unit


def test_a_benchmark_runs_by_the_runner_and_its_record_is_whole(tmp_path):
    records = tmp_path / "records.jsonl"
    command = [sys.executable, "-m", "benchmarks", "search", "search_engines"]
    command += ["--seeds", "1", "--evaluations", "20", "--repeat", "2"]
    command += ["--out", str(tmp_path / "figures.json"), "--json", str(records)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=places.ROOT
    )
    assert "[1/1] search search_engines: done" in done.stderr
    row = json.loads(records.read_text(encoding="utf-8").splitlines()[0])
    assert row.keys() == {
        "benchmark", "case", "value", "unit", "spread", "repeats", "seed", "where",
        "versions",
    }  # fmt: skip
    assert row["benchmark"] == "search/search_engines"
    assert row["where"].keys() == {"system", "processor", "cores"}
    assert {"python", "meshwright", "jax", "numpy"} <= row["versions"].keys()


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_every_script_shows_its_help(script):
    done = subprocess.run(
        [sys.executable, "-m", script.module, "--help"],
        capture_output=True,
        text=True,
        check=True,
        cwd=places.ROOT,
    )
    assert "shared by all benchmarks" in done.stdout
