"""`meshwright zoo`: what it lists, and what it says of a name that is not there."""

import json

import pytest


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
