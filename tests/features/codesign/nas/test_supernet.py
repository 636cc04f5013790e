"""Weight sharing: one net holds all candidates, and tells good ones from bad ones."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from meshwright.codesign import nas
from meshwright.errors import SearchError

SPACE = nas.Space(
    {"kind": nas.Choice("linear", "none", "mixed"), "width": nas.Range(1, 8)}
)
CANDIDATES = [
    {"kind": k, "width": w} for k in ("linear", "none", "mixed") for w in (1, 8)
]


def data():
    """Points on a plane; the label is the sign of the product of both coordinates."""
    x = np.random.default_rng(0).normal(size=(600, 2)).astype(np.float32)
    y = (x[:, 0] * x[:, 1] > 0).astype(np.int32)
    return x[:400], y[:400], x[400:], y[400:]


def init(key, x):
    keys = jax.random.split(key, 3)
    return {
        "linear": jax.random.normal(keys[0], (2, 8)),
        "mixed": jax.random.normal(keys[1], (3, 8)),
        "out": 0.1 * jax.random.normal(keys[2], (8, 2)),
    }


def apply(params, x, code):
    """A linear layer, nothing, or one that sees the product too; then `width` channels."""
    product = jnp.concatenate([x, x[:, :1] * x[:, 1:]], axis=1)
    branches = [
        lambda p: x @ p["linear"],
        lambda p: jnp.zeros((len(x), 8)),
        lambda p: product @ p["mixed"],
    ]
    y = jax.lax.switch(code[0].astype(int), branches, params)
    return (y * (jnp.arange(8) < code[1])) @ params["out"]


def net(**fields) -> nas.Supernet:
    return nas.Supernet(
        SPACE, init, apply, data, **({"steps": 300, "seed": 1} | fields)
    )


def test_shared_weights_tell_candidates_apart_and_every_process_has_the_same():
    shared = net()
    found = [shared(each)["shared_accuracy"] for each in CANDIDATES]
    linear, none, mixed = found[1], found[3], found[5]
    assert mixed > 0.9 > max(linear, none)
    copy = pickle.loads(pickle.dumps(shared))
    assert [copy(each)["shared_accuracy"] for each in CANDIDATES] == found
    again = net()
    assert again(CANDIDATES[5])["shared_accuracy"] == mixed


def always_8(params, x, code):
    """As `apply`, with all channels."""
    return apply(params, x, jnp.array([code[0], 8]))


def test_a_step_moves_only_the_weights_on_a_path():
    only = nas.Space({"kind": nas.Choice("linear", "none", "mixed")}, where=is_linear)
    first = init(jax.random.key(0), None)
    after = nas.Supernet(only, init, always_8, data, steps=3).weights
    np.testing.assert_array_equal(after["mixed"], first["mixed"])
    assert not np.array_equal(after["linear"], first["linear"])


def is_linear(candidate) -> bool:
    return candidate["kind"] == "linear"


def build(candidate):
    """A candidate's own model, with weights for all of the kinds."""
    kind = ("linear", "none", "mixed").index(candidate["kind"])
    code = jnp.array([kind, candidate["width"]])
    return init, lambda params, x: apply(params, x, code)


def test_its_rank_correlation_is_printed_beside_the_result():
    evaluate = nas.Trained(build, data, steps=20, supernet=net(steps=50))
    front = nas.search(
        SPACE, evaluate, objectives={"accuracy": "max"}, engine="random", trials=3
    )
    assert front.proxies == ("shared_accuracy",)
    assert all("shared_accuracy" in t.values for t in front.front.trials)


def test_misuse_is_said_in_a_sentence():
    with pytest.raises(SearchError, match="steps is 0; wanted 1 or more"):
        net(steps=0)
    with pytest.raises(FloatingPointError, match="the supernet's loss is nan"):
        net(steps=3, rate=float("inf")).weights  # noqa: B018
