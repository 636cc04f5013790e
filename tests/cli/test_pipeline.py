"""`meshwright plan --pipeline`: what it prints and saves, and wrong options."""

import json

import pytest

TRAIN = """
import jax, jax.numpy as jnp

def loss(params, x):
    for w in params:
        x = jnp.tanh(x @ w)
    return jnp.mean(x ** 2)

def step(params, x):
    value, grads = jax.value_and_grad(loss)(params, x)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), value

def target():
    weights = [jax.ShapeDtypeStruct((64, 64), jnp.float32)] * 4
    return step, (weights, jax.ShapeDtypeStruct((4, 64), jnp.float32))
"""
PIPELINE = ("--machine", "v100", "--chips", "2", "--pipeline")


@pytest.fixture
def train(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(TRAIN)
    return f"{path}:target"


def test_a_pipeline_is_printed_and_saved(run, train, tmp_path):
    found = run("plan", train, *PIPELINE, "--out", str(tmp_path / "plan.json"))
    assert found.status == 0, found.err
    assert "microbatches" in found.out
    assert "1 microbatches" in found.out
    assert "MFU" in found.out
    assert "step = mw.pipeline(" in found.out
    saved = json.loads((tmp_path / "plan.json").read_text())
    assert sum(len(line.split()) for line in saved["schedule"]) > 0
    assert saved["figures"]["step_time_s"] > 0


def test_the_page_and_the_trace_of_a_pipeline_are_those_of_plans(run, train, tmp_path):
    page, trace = tmp_path / "plan.html", tmp_path / "plan.json"
    found = run(
        "plan", train, *PIPELINE, "--out", str(page), "--trace", str(trace),
        "--place", "iowa", "--tokens-per-step", "64",
    )  # fmt: skip
    assert found.status == 0, found.err
    assert "tokens/s" in found.out
    for section in ("summary", "candidates", "schedule", "stages", "memory"):
        assert f'id="{section}"' in page.read_text()
    assert json.loads(trace.read_text())["traceEvents"]


def test_options_that_a_pipeline_chooses_itself_are_refused(run, train):
    found = run("plan", train, *PIPELINE, "--tactics", "fsdp('data')")
    assert found.status == 2
    assert "--tactics does not go with --pipeline" in found.err
