"""`meshwright zoo`: what it lists, and what it says of a name that is not there."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import meshwright
from meshwright.features.zoo import command as zoo


@pytest.fixture(autouse=True)
def at_root(monkeypatch, request):
    monkeypatch.chdir(request.config.rootpath)


def test_a_program_is_listed_with_its_counts(run):
    done = run("zoo", "gpt3", "--tiny", "--json")
    assert done.status == 0, done.err
    (row,) = json.loads(done.out)
    assert row["target"] == "zoo/gpt3.py:tiny"
    assert 100_000 < row["parameters"] < 200_000
    # Forward and backward: six operations for each parameter and token, and attention.
    assert row["flops"] > 6 * row["parameters"] * 16 * 64 * 0.9
    assert row["peak_bytes"] > 3 * 4 * row["parameters"]


def test_the_table_has_a_line_for_each_target(run):
    done = run("zoo", "gpt3")
    assert done.status == 0, done.err
    assert "zoo/gpt3.py:t24" in done.out
    assert "GiB" in done.out


def test_an_unknown_program_says_which_there_are(run):
    done = run("zoo", "gpt33")
    assert done.status == 2
    assert "the zoo has no 'gpt33'; did you mean 'gpt3'" in done.err
    assert "resnet" in done.err


def test_rows_are_printed_as_soon_as_they_are_traced(capsys):
    """Also in a pipe: what is not yet traced cannot hold back what is."""
    entries = zoo.zoo_entries(("gpt3", "gns"), tiny=True)

    def fail(*_):
        raise KeyboardInterrupt

    first, (target, title, _) = entries
    with pytest.raises(KeyboardInterrupt):
        zoo.print_rows([first, (target, title, fail)], width=160)
    assert "zoo/gpt3.py:tiny" in capsys.readouterr().out


def test_a_narrow_table_has_no_titles_and_a_wide_one_whole_ones(capsys):
    entries = zoo.zoo_entries(("gpt3",), tiny=True)
    zoo.print_rows(entries, width=70)
    narrow = capsys.readouterr().out
    zoo.print_rows(entries, width=160)
    wide = capsys.readouterr().out
    assert "T24" not in narrow
    assert "automap's T24" in wide
    assert max(map(len, narrow.splitlines())) <= 70


def test_all_programs_fit_a_terminal_of_80_columns():
    names = [target for target, *_ in zoo.zoo_entries((), tiny=False)]
    assert max(map(len, names)) <= 33  # the numbers and gaps take 47


def test_outside_of_the_repository_the_error_says_where_the_zoo_is(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "meshwright", "zoo"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(Path(meshwright.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "it is part of Meshwright's repository" in done.stderr
    assert "or put that on PYTHONPATH" in done.stderr
