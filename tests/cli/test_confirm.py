"""`meshwright confirm`: a table, JSON, and what is said where that cannot be."""

import importlib.util
import json

import pytest

from tests.fake_compiler import install

STEP = ["confirm", "mlp.py", "--mesh", "data=4,model=2", "--schedule", "dp"]


@pytest.fixture(autouse=True)
def _target(mlp):
    assert STEP[1] == mlp


def test_predicted_and_compiled_figures_are_printed_side_by_side(run, monkeypatch):
    install(monkeypatch)
    done = run(*STEP, "--machine", "h100")
    assert done.status == 0, done.err
    title, head, names, *rows = done.out.splitlines()
    assert title == "mlp.py:target on data=4,model=2"
    assert head.startswith("h100, 8 devices, compiled in ")
    assert names.split()[-3:] == ["predicted", "compiled", "difference"]
    assert rows[0].split()[-5:-1] == ["KiB", "6.84", "KiB", "-59.8"]


def test_json_is_printed_and_the_compilers_files_are_kept(run, monkeypatch, tmp_path):
    install(monkeypatch)
    folder = tmp_path / "kept"
    done = run(*STEP, "--machine", "h100", "--json", "--keep", str(folder))
    fields = json.loads(done.out)
    assert (fields["target"], fields["machine"]) == ("mlp.py:target", "h100")
    assert fields["compiled"]["collectives"]["all_reduce"]["num_bytes"] == 2048
    assert (folder / "compiled.hlo").exists()


@pytest.mark.parametrize(
    ("machine", "message"),
    [
        ("h100", "error: the GPU compiler needs jax_cuda13_plugin: pip install"),
        (
            "tpu-v5e",
            "error: the TPU compiler needs libtpu: pip install 'meshwright[tpu]'",
        ),
        (
            "cpu",
            "error: there is no ahead-of-time compiler for cpu; it is a cpu machine",
        ),
        ("tpu", "error: there is no machine 'tpu'; did you mean"),
    ],
)
def test_a_step_that_cannot_be_confirmed_is_one_message(
    run, monkeypatch, machine, message
):
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name: None if name in ("libtpu", "jax_cuda13_plugin") else real(name),
    )
    done = run(*STEP, "--machine", machine)
    assert (done.status, done.out) == (2, "")
    assert done.err.startswith(message)
    assert done.err.count("\n") == 1


def test_a_mesh_that_no_such_machine_has_says_which_sizes_there_are(run):
    options = ["--mesh", "data=11", "--machine", "h100"]
    done = run("confirm", "mlp.py", "--schedule", "dp", *options)
    assert done.status == 2
    assert "no h100 has 11 devices; near sizes: 6, 7, 8, 16" in done.err
