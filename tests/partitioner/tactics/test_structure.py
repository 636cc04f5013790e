import jax
import jax.numpy as jnp
import numpy as np
import pytest

import meshwright as mw
from meshwright.partitioner.structure.input_roles import find_roles
from tests.partitioner.tactics import models
from tests.partitioner.tactics.models import D, F, normal

MESH = {"data": 4}


def roles(fn, *args):
    """Paths by role."""
    work = mw.partition(fn, MESH).decide(*args).work
    found = find_roles(work)
    names = ("params", "optimizer", "carried", "data")
    return {n: {work.paths[i] for i in getattr(found, n)} for n in names}


def test_parameters_are_what_the_loss_depends_on():
    fn, args = models.mlp()
    found = roles(fn, *args)
    assert found["params"] == {f"state.p.{n}" for n in "abcd"}
    assert found["optimizer"] == {f"state.{s}.{n}" for s in "qr" for n in "abcd"}
    assert found["data"] == {"batch.x", "batch.y"}


def test_without_a_loss_parameters_are_what_acts_on_every_gradient():
    fn, args = models.mlp()
    found = roles(lambda state, batch: fn(state, batch)[0], *args)
    assert found["params"] == {f"state.p.{n}" for n in "abcd"}
    assert found["optimizer"] == {f"state.{s}.{n}" for s in "qr" for n in "abcd"}


def test_the_norm_of_the_new_parameters_makes_no_moment_a_parameter():
    fn, args = models.mlp()

    def step(state, batch):
        state, loss = fn(state, batch)
        size = sum(jnp.sum(w * w) for w in jax.tree.leaves(state["p"]))
        return state, {"loss": loss, "size": size}

    assert roles(step, *args)["params"] == {f"state.p.{n}" for n in "abcd"}


def test_plain_sgd_has_parameters_only():
    def step(params, batch):
        def loss(p):
            return jnp.mean((jnp.tanh(batch["x"] @ p["a"]) @ p["c"]) ** 2)

        value, grads = jax.value_and_grad(loss)(params)
        return jax.tree.map(lambda p, g: p - g, params, grads), value

    found = roles(step, {"a": normal(D, F), "c": normal(F, D)}, {"x": normal(8, D)})
    assert found["params"] == {"params.a", "params.c"}
    assert found["optimizer"] == set()
    assert found["data"] == {"batch.x"}


def test_stacked_layers_under_a_scan_with_remat_are_parameters():
    fn, args = models.language_model(
        models.llama_block, models.llama_weights(), stacked=True
    )
    found = roles(fn, *args)
    assert found["params"] == {"state.p.e", *(f"state.p.l.{n}" for n in "qkvoguw")}
    assert found["data"] == {"batch.x", "batch.y"}


def test_keys_and_scalars_are_no_data():
    def step(params, x, key, raw, rate):
        noise = jax.random.normal(key, x.shape) + jax.random.uniform(raw, x.shape)
        value, grad = jax.value_and_grad(lambda p: jnp.sum((x + noise) @ p))(params)
        return params - rate * grad, value

    keys = jax.random.split(jax.random.key(0), 2)[0], jax.random.PRNGKey(1)
    found = roles(step, normal(D, F), normal(8, D), *keys, np.float32(0.1))
    assert found["data"] == {"x"}


def test_an_inference_function_tells_weights_from_what_they_are_multiplied_with():
    def predict(weights, image):
        hidden = jnp.tanh(image @ weights["a"] + weights["b"])
        return hidden @ weights["c"]

    weights = {"a": normal(D, F), "b": normal(F), "c": normal(F, D)}
    found = roles(predict, weights, normal(8, D))
    assert found["params"] == {"weights.a", "weights.b", "weights.c"}
    assert found["data"] == {"image"}


def test_quantized_weights_are_parameters_and_images_of_bytes_are_data():
    def predict(weights, image):
        hidden = image.astype(jnp.float32) @ weights["a"]["q"].astype(jnp.float32)
        return jnp.tanh(hidden * weights["a"]["scale"]) @ weights["c"]

    quantized = {"q": np.ones((D, F), np.int8), "scale": normal(F)}
    weights = {"a": quantized, "c": normal(F, D)}
    found = roles(predict, weights, np.ones((8, D), np.uint8))
    assert found["params"] == {"weights.a.q", "weights.a.scale", "weights.c"}
    assert found["data"] == {"image"}


def test_flat_arguments_are_told_apart_too():
    found = roles(
        lambda x, w, v: jnp.tanh(x @ w) @ v, normal(8, D), normal(D, F), normal(F, D)
    )
    assert found["params"] == {"w", "v"}
    assert found["data"] == {"x"}


def test_a_cache_that_is_handed_on_is_neither_parameter_nor_data():
    def decode(weights, cache, tokens):
        x = weights["e"][tokens]
        cache = {"k": jnp.roll(cache["k"], 1, axis=1).at[:, 0].set(x @ weights["k"])}
        scores = jax.nn.softmax(jnp.einsum("bd,bsd->bs", x, cache["k"]))
        return jnp.einsum("bs,bsd->bd", scores, cache["k"]) @ weights["o"], cache

    weights = {"e": normal(32, D), "k": normal(D, D), "o": normal(D, 32)}
    tokens = np.zeros(8, np.int32)
    found = roles(decode, weights, {"k": normal(8, 4, D)}, tokens)
    assert found["params"] == {"weights.e", "weights.k", "weights.o"}
    assert found["carried"] == {"cache.k"}
    assert found["data"] == {"tokens"}


def test_frozen_weights_beside_trained_ones_are_parameters():
    def step(adapter, frozen, batch):
        def loss(p):
            x = jnp.tanh(batch["x"] @ frozen["a"] + (batch["x"] @ p["l"]) @ p["r"])
            return jnp.mean((x @ frozen["c"] - batch["y"]) ** 2)

        value, grads = jax.value_and_grad(loss)(adapter)
        return jax.tree.map(lambda p, g: p - g, adapter, grads), value

    adapter = {"l": normal(D, 2), "r": normal(2, F)}
    frozen = {"a": normal(D, F), "c": normal(F, D)}
    found = roles(step, adapter, frozen, models.examples(D))
    assert found["params"] == {"adapter.l", "adapter.r", "frozen.a", "frozen.c"}
    assert found["data"] == {"batch.x", "batch.y"}


@pytest.mark.parametrize("name", ["zero", "fsdp", "megatron", "expert_parallel"])
def test_an_axis_that_is_not_in_the_mesh_says_which_there_are(name):
    fn, args = models.mlp()
    make = getattr(mw, name)
    tactic = make(3, "modle") if name == "zero" else make("modle")
    with pytest.raises(mw.MeshwrightError, match=r"'modle' is not in the mesh.*data=4"):
        mw.partition(fn, MESH, [tactic]).plan(*args)
