"""`meshwright chips`: output, files, exit statuses."""

import json

import pytest

from meshwright.cli import main

TARGET = """
import jax, jax.numpy as jnp

def target():
    def fn(params, x):
        for w in params:
            x = jnp.tanh(x @ w)
        return x
    w = jax.ShapeDtypeStruct((256, 256), jnp.float32)
    return fn, ([w] * 4, jax.ShapeDtypeStruct((16, 256), jnp.float32))
"""


@pytest.fixture
def target(tmp_path):
    path = tmp_path / "model.py"
    path.write_text(TARGET)
    return str(path)


def run(*arguments):
    with pytest.raises(SystemExit) as ended:
        main(["chips", *arguments])
    return ended.value.code


def test_it_prints_figures_and_writes_files(target, tmp_path, capsys):
    table, page = tmp_path / "chips.csv", tmp_path / "chips.html"
    given = ["--machine", "mcm-4", "--seconds", "1", "--out", str(table)]
    assert run(target, *given, "--html", str(page)) == 0
    printed = capsys.readouterr().out
    assert "throughput" in printed
    assert table.read_text().startswith("op,seconds,chip\n")
    assert "<svg" in page.read_text()


def test_json_has_the_figures(target, capsys):
    assert (
        run(target, "--machine", "mcm-36", "--chips", "3", "--seconds", "1", "--json")
        == 0
    )
    form = json.loads(capsys.readouterr().out)
    assert form["module"]["num_chips"] == 3
    assert len(form["chips"]) == len(form["graph"]["names"])
    assert len(form["memory_bytes"]) == 3


def test_misuse_ends_with_status_2(target, tmp_path, capsys):
    assert run(target, "--machine", "mcm-5") == 2
    assert "did you mean" in capsys.readouterr().err
    assert run(target, "--machine", "tpu-v6e") == 2
    assert "say how many chips" in capsys.readouterr().err
    assert run(target, "--out", str(tmp_path / "no" / "x.csv")) == 2
    assert "there is no folder" in capsys.readouterr().err
    assert run(target, "--out", str(tmp_path)) == 2
    assert "that is a folder" in capsys.readouterr().err


def test_an_error_names_the_users_line_also_if_a_package_of_another_folder_raised(
    tmp_path, capsys, monkeypatch
):
    folder = tmp_path / "site-packages"  # as after pip install --user
    folder.mkdir()
    (folder / "package_that_fails.py").write_text(
        "def fail(): raise ValueError('no')\n"
    )
    monkeypatch.syspath_prepend(folder)
    file = tmp_path / "model.py"
    file.write_text(
        "import package_that_fails\n"
        "def fn(x):\n    return package_that_fails.fail()\n"
        "def target(): return fn, (1.0,)\n"
    )
    assert run(f"{file}:target") == 2
    assert "model.py:3: ValueError: no" in capsys.readouterr().err
