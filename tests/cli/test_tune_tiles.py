"""`meshwright tune tiles` and `learned collect --collection tile`."""

import pytest

from meshwright.features.tune.iree import toolchain

PROGRAM = """
import jax.numpy as jnp
def product():
    return lambda x, w: jnp.tanh(x @ w), (jnp.ones((64, 96)), jnp.ones((96, 64)))
"""


@pytest.fixture
def target(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return f"{path}:product"


@pytest.mark.iree
def test_commands_write_a_spec_and_a_data_set(run, target, tmp_path):
    spec = tmp_path / "spec.mlir"
    done = run("tune", "tiles", target, "--budget", "3", "--out", str(spec))
    assert done.status in (0, 1), done.err
    assert "end to end" in done.out
    assert spec.exists() == (done.status == 0)
    done = run(
        "learned", "collect", target, "--collection", "tile",
        "--out", str(tmp_path / "data"), "--configs", "3", "--passes", "1",
    )  # fmt: skip
    assert done.status == 0, done.err
    assert "default / best" in done.out


def test_an_error_names_the_extra_where_iree_is_missing(run, target, monkeypatch):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(toolchain, "import_module", missing)
    toolchain._compiler.cache_clear()
    done = run("tune", "tiles", target)
    assert done.status == 2
    assert "pip install 'meshwright[iree]'" in done.err


def test_what_only_layouts_have_is_refused_for_tiles(run, target):
    done = run("tune", "tiles", target, "--backend", "tpu-v5e")
    assert done.status == 2
    assert "no backend 'tpu-v5e' for tiles: iree-cpu is the only one" in done.err
    done = run("tune", "tiles", target, "--mesh", "x=2")
    assert done.status == 2
    assert "are for layouts" in done.err
