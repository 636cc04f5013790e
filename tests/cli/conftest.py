"""Runs the command line in this process and returns what it printed."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from meshwright.cli import main

MLP = """
import jax, jax.numpy as jnp
import meshwright as mw

def struct(*shape, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(shape, dtype)

def step(params, batch):
    hidden = jax.nn.relu(batch["x"] @ params[0]["up"])
    return jnp.mean((hidden @ params[0]["down"] - batch["y"]) ** 2)

def target():
    params = [{"up": struct(8, 16), "down": struct(16, 4)}]
    return jax.grad(step), (params, {"x": struct(32, 8), "y": struct(32, 4)})

def other():
    return target()

schedules = {
    "dp": [mw.shard({"batch.*": 0}, axis="data")],
    "dp+mp": [
        mw.shard({"batch.*": 0}, axis="data"),
        mw.shard({"params.*.up": 1}, axis="model"),
    ],
    "typo": [mw.shard({"btach.*": 0}, axis="data")],
}
"""


class Result(NamedTuple):
    status: int
    out: str
    err: str


Run = Callable[..., Result]


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    """Each test in a folder of its own, with the import path as it was afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("COLUMNS", "200")
    yield
    for name, module in list(sys.modules.items()):
        if (getattr(module, "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.fixture
def run(capsys) -> Run:
    """`run("plan", "mlp.py", ...)`: exit status, stdout, stderr."""

    def call(*arguments: str) -> Result:
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        out, err = capsys.readouterr()
        return Result(int(caught.value.code or 0), out, err)

    return call


@pytest.fixture
def write() -> Callable[[str, str], str]:
    """Write a module below the test's folder; its path."""

    def put(name: str, text: str) -> str:
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return name

    return put


@pytest.fixture
def mlp(write) -> str:
    return write("mlp.py", MLP)
