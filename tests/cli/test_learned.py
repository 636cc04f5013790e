"""`meshwright learned`: collected, trained and evaluated from files."""

import json
import os

import pytest

from meshwright.features.tune.collect import layouts
from meshwright.features.tune.learned.data_files import read_npz, write_npz
from tests.features.tune.learned.synthetic import kernel, layout_program


@pytest.fixture
def data(tmp_path):
    for seed in range(2):
        write_npz(tmp_path / "data", layout_program(seed=seed))
    return str(tmp_path / "data")


def train(run, data, model, *options):
    sizes = (
        "--epochs",
        "3",
        "--width",
        "8",
        "--layers",
        "1",
        "--configs-per-step",
        "8",
    )
    return run("learned", "train", data, "--out", str(model), *sizes, *options)


def test_a_model_is_trained_resumed_and_evaluated(run, data, tmp_path):
    model = tmp_path / "model.npz"
    done = train(run, data, model, "--valid", data, "--without", "pruning")
    assert done.status == 0, done.err
    assert "epoch 3/3  loss" in done.err
    assert "OPA" in done.err
    assert "2 graphs, 3 epochs" in done.out
    again = train(run, data, model, "--valid", data, "--without", "pruning")
    assert "epoch" not in again.err  # it was trained to the end
    other = train(run, data, model)
    assert other.status == 2
    assert "give the same options" in other.err
    done = run("learned", "evaluate", data, "--model", str(model))
    rows = [line.split()[0] for line in done.out.splitlines()]
    assert rows == ["2", "random", "default", "copies", "model"]
    form = json.loads(run("learned", "evaluate", data, "--json").out)
    assert form["rankings"]["default"]["top_1_error"] >= 0
    assert form["noise_ceiling_tau"] is None


def test_mistakes_are_status_2_and_say_what_to_do(run, tmp_path, data):
    missing = run("learned", "evaluate", str(tmp_path / "nothing"))
    assert missing.status == 2
    assert "there is no file or folder" in missing.err
    model = tmp_path / "model.npz"
    train(run, data, model)
    write_npz(tmp_path / "tiles", kernel())
    done = run("learned", "evaluate", str(tmp_path / "tiles"), "--model", str(model))
    assert done.status == 2
    assert "the model is for layout: train one for each" in done.err


def test_a_target_is_collected_into_a_file(run, tmp_path, monkeypatch):
    monkeypatch.setattr(layouts, "paired_cpu_ns", lambda *measured: (1000, 1000))
    monkeypatch.setattr(os, "sched_setaffinity", lambda pid, cores: None, raising=False)
    (tmp_path / "small.py").write_text(
        "import jax, jax.numpy as jnp\n"
        "def target():\n"
        "    x = jax.ShapeDtypeStruct((8, 4), jnp.float32)\n"
        "    return lambda x: jnp.tanh(x @ x.T), (x,)\n"
    )
    out = tmp_path / "out"
    options = ("--out", str(out), "--configs", "3", "--passes", "2")
    done = run("learned", "collect", str(tmp_path / "small.py"), *options)
    assert done.status == 0, done.err
    assert "default / best  1.000" in done.out
    assert read_npz(out / "small-target.npz").default_config == 0
