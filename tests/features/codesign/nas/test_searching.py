"""`nas.search`, `nas.Trained`, proxies, the page and the command."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from typer.testing import CliRunner

from meshwright.codesign import nas
from meshwright.errors import SearchError, TargetError
from meshwright.features.codesign.nas.command import nas_command
from meshwright.features.codesign.nas.searching.model import built_model
from meshwright.features.codesign.nas.searching.proxies import PROXIES
from tests.features.codesign.nas import space_module

FILE = str(Path(__file__).with_name("space_module.py"))
OBJECTIVES = {"accuracy": "max", "latency_s": "min"}


def run(*arguments: object):
    return CliRunner().invoke(nas_command, ["search", FILE, *map(str, arguments)])


def test_a_search_writes_its_front_and_goes_on(tmp_path):
    out = tmp_path / "found"
    first = run("--machine", "tpu-v5e", "--trials", 2, "--out", out)
    assert first.exit_code == 0, first.output
    again = run("--machine", "tpu-v5e", "--trials", 9, "--resume", out, "--json")
    assert again.exit_code == 0, again.output
    front = json.loads(again.stdout)
    assert front == json.loads((out / "front.json").read_text())
    assert (front["trials"], front["stopped"]) == (4, "exhausted")
    best = front["points"][0]
    assert (
        best["values"]["accuracy"]
        > 0.8
        > 0.65
        > front["points"][-1]["values"]["accuracy"]
    )
    folder = out / f"model-{best['trial']:05d}"
    assert json.loads((folder / "candidate.json").read_text()) == best["candidate"]
    made: dict = {"__file__": str(folder / "model.py")}
    exec((folder / "model.py").read_text(), made)
    fn, args = made["target"]()
    assert nas.latency(fn, args, "tpu-v5e").seconds == best["values"]["latency_s"]
    page = (out / "front.html").read_text()
    assert "<script" not in page
    assert page.count("<circle") == front["trials"]
    assert "synflow" in page
    for words, arguments in {
        "go on with --resume": ("--out", out),
        "another seed": ("--resume", out, "--seed", 1),
        "has no journal": ("--resume", tmp_path / "none"),
        "did you mean 'nsga2'": ("--engine", "nsga1"),
    }.items():
        refused = run("--machine", "tpu-v5e", *arguments)
        assert words in str(refused.exception), (words, refused.output)
    slow = run(
        "--machine", "tpu-v5e", "--trials", 4, "--resume", out, "--target-ms", 1e-9
    )
    assert slow.exit_code == 1
    assert "no point of the front has latency_s <= 1e-12" in slow.stderr
    for words in ("core-seconds", "CO2e", "Kendall's tau with accuracy: synflow"):
        assert words in slow.stdout


def test_an_evaluation_learns_and_prices():
    evaluate = nas.Trained(space_module.build, space_module.data, steps=60, rate=0.05)
    figures = evaluate({"width": 64, "layers": 1})
    assert figures["accuracy"] > 0.8
    assert figures["parameters"] == 6 * 64 + 64 * 2
    assert figures["macs"] == pytest.approx(6 * 64 + 64 * 2, rel=0.3)
    assert "latency_s" not in figures
    less = evaluate({"width": 64, "layers": 1}, fidelity=0.05)
    assert less["loss"] > figures["loss"]
    lost = nas.Trained(space_module.build, space_module.data, steps=3, rate=math.inf)
    with pytest.raises(FloatingPointError, match=r"the loss is nan after 3 steps"):
        lost({"width": 4, "layers": 1})


def test_flax_modules_with_batch_statistics_are_trained():
    class Net(nn.Module):
        @nn.compact
        def __call__(self, x, train):
            x = nn.Dense(32)(x)
            return nn.Dense(2)(nn.relu(nn.BatchNorm(use_running_average=not train)(x)))

    evaluate = nas.Trained(lambda c: Net(), space_module.data, steps=60, rate=0.05)
    assert evaluate({})["accuracy"] > 0.8


class Grouped(nn.Module):
    """A depthwise convolution and one of groups of two channels."""

    kernel: int
    stride: int
    padding: str

    @nn.compact
    def __call__(self, x):
        window, size = (self.kernel, self.kernel), x.shape[-1]
        strides = (self.stride, 1)
        conv = partial(nn.Conv, size, window, strides, padding=self.padding)
        y = conv(feature_group_count=size)(x)
        return y.mean() + conv(feature_group_count=size // 2)(x)


@pytest.mark.parametrize(
    ("kernel", "stride", "padding"),
    [(1, 1, "SAME"), (2, 2, "VALID"), (3, 2, "SAME"), (5, 1, "VALID")],
)
def test_grouped_convolutions_train_as_others_and_are_priced_as_they_are(
    kernel, stride, padding
):
    model = built_model(Grouped(kernel, stride, padding))
    x = jax.random.normal(jax.random.key(0), (2, 7, 6, 4))
    params, _ = model.init(jax.random.key(1), x)

    def loss(params, key):
        return jnp.square(model.apply(params, {}, x, key)[0]).sum()

    grads = jax.grad(loss)
    for wanted, found in zip(
        jax.tree.leaves(grads(params, None)),
        jax.tree.leaves(grads(params, jax.random.key(2))),
        strict=True,
    ):
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-4)
    for key, groups in ((None, ["2", "4"]), (jax.random.key(2), ["1"])):
        text = str(jax.make_jaxpr(loss)(params, key))
        assert sorted(re.findall(r"feature_group_count=(\d)", text)) == groups


@pytest.mark.parametrize(
    ("dtype", "rank"), [("uint8", 2), ("bfloat16", 2), ("float32", 1)]
)
def test_grouped_convolutions_of_other_dtypes_and_ranks_are_left_to_flax(dtype, rank):
    conv = nn.Conv(8, (3,) * rank, feature_group_count=2)
    model, x = built_model(conv), jnp.ones((2, 6, 6, 4), dtype)
    params, _ = model.init(jax.random.key(0), x)
    found, _ = model.apply(params, {}, x, jax.random.key(1))
    np.testing.assert_allclose(found, conv.apply({"params": params}, x), rtol=1e-5)


def test_several_trainings_are_averaged_and_drop_units_at_random():
    class Net(nn.Module):
        @nn.compact
        def __call__(self, x, train):
            x = nn.relu(nn.Dense(32)(x))
            return nn.Dense(2)(nn.Dropout(0.3, deterministic=not train)(x))

    evaluate = nas.Trained(lambda c: Net(), space_module.data, steps=40, rate=0.05)
    single = [replace(evaluate, seed=seed)({}) for seed in (3, 4)]
    both = replace(evaluate, seed=3, trainings=2)({})
    for name in ("accuracy", "loss"):
        assert both[name] == pytest.approx(np.mean([each[name] for each in single]))
    with pytest.raises(SearchError, match="trainings is 0"):
        replace(evaluate, trainings=0)


def test_proxies_are_those_of_their_definitions():
    weights = [jnp.array([[1.0, -2.0]]), jnp.array([[3.0], [-0.5]])]
    linear = built_model((lambda key, x: weights, lambda p, x: x @ p[0] @ p[1]))
    inputs = jnp.ones((4, 1))
    # Each of the two layers carries the whole flow: 1 * 3 + 2 * 0.5.
    assert PROXIES["synflow"](linear, inputs) == pytest.approx(math.log(2 * 4.0))
    assert PROXIES["parameters"](linear, inputs) == 4
    alike = PROXIES["naswot"](linear, inputs)
    corners = jnp.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
    bent = built_model(
        (lambda key, x: (), lambda p, x: jnp.abs(x).sum(-1, keepdims=True))
    )
    assert PROXIES["naswot"](bent, corners) > alike


def test_the_reward_is_the_papers():
    reward = nas.Reward(0.01, w=-0.09)
    assert reward.of({"accuracy": 0.8, "latency_s": 0.01}) == pytest.approx(0.8)
    doubled = reward.of({"accuracy": 0.8, "latency_s": 0.02})
    assert doubled == pytest.approx(0.8 * 2**-0.09)
    assert reward({"accuracy": 0.8, "latency_s": 0.02}) == -doubled


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "there is no file|None|several functions"),
        ("def a(): return 3", "wanted a nas.Space"),
        ("from meshwright.codesign import nas\ndef a(): return nas.Space({'k': 1})", "has no `evaluate`"),  # noqa: E501
        ("def a(): pass\ndef b(): pass", "name one, as"),
    ],
)  # fmt: skip
def test_files_without_a_space_are_refused(tmp_path, text, words):
    file = tmp_path / f"bad_{abs(hash(text))}.py"
    file.write_text(text)
    with pytest.raises(TargetError, match=words):
        nas.SpaceFile(str(file)).space.plain()


def test_arguments_that_mean_nothing_are_refused():
    with pytest.raises(SearchError, match="did you mean 'synflow'"):
        nas.Trained(space_module.build, space_module.data, proxies=("sinflow",))
    with pytest.raises(SearchError, match="wanted a flax linen module"):
        nas.Trained(lambda c: 3, space_module.data)({})
    x, y = np.zeros((3, 1)), np.zeros(2)
    with pytest.raises(SearchError, match="3 inputs and 2 labels"):
        nas.Trained(space_module.build, (x, y, x, y))({"width": 4, "layers": 0})
