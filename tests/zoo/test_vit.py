import re
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import meshwright as mw
from zoo import vit
from zoo.workload import num_parameters

TINY = {"layers": 2, "d_model": 64, "heads": 4, "d_ff": 128, "patch": 8, "size": 32}


@pytest.mark.parametrize(
    ("name", "millions"),
    [("ti_16", 5.7), ("s_16", 22.1), ("b_32", 88.2), ("l_32", 306.5), ("h_14", 632.0)],
)
def test_parameters_are_those_of_the_released_models(name, millions):
    count = vit.num_weights(vit.SIZES[name])
    assert count == pytest.approx(millions * 1e6, rel=0.005)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"heads": 5}, "5 heads do not divide d_model 64"),
        ({"patch": 12}, "patches of 12 pixels do not divide images of 32 pixels"),
    ],
)
def test_a_config_that_does_not_fit_says_why(changes, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        vit.Config(**{**TINY, **changes})


def test_patches_are_squares_of_the_image_row_by_row():
    image = jnp.arange(2 * 6 * 6 * 3).reshape(2, 6, 6, 3)
    found = vit.patches(image, 2)
    assert found.shape == (2, 9, 12)
    np.testing.assert_array_equal(found[1, 5].reshape(2, 2, 3), image[1, 2:4, 4:6])


def scores_of(params, image):
    return vit.ViT(vit.TINY).apply({"params": params}, image)


def test_patches_have_an_order_only_by_their_positions():
    _, (state, batch) = vit.tiny()
    rolled = jnp.roll(batch["image"], vit.TINY.patch, axis=1)
    params = jax.tree.map(jnp.asarray, state.params)
    forward = jax.jit(scores_of)
    assert not np.allclose(forward(params, batch["image"]), forward(params, rolled))
    params["positions"] = jnp.zeros_like(params["positions"])
    np.testing.assert_allclose(
        forward(params, batch["image"]), forward(params, rolled), atol=1e-4
    )


def test_dropout_follows_its_random_numbers():
    _, (state, batch) = vit.tiny()
    model = vit.ViT(replace(vit.TINY, dropout=0.5))

    @jax.jit
    def forward(seed):
        numbers = {"dropout": jax.random.key(seed)}
        return model.apply({"params": state.params}, batch["image"], rngs=numbers)

    np.testing.assert_array_equal(forward(0), forward(0))
    assert not np.allclose(forward(0), forward(1), atol=0.1)


def test_there_is_one_token_more_than_patches():
    _, (state, _) = vit.targets["b_16"]()
    assert state.params["positions"].shape == (1, 14 * 14 + 1, 768)
    assert state.params["token"].shape == (1, 1, 768)


def test_layers_are_traced_once():
    _, (state, _) = vit.targets["h_14"]()
    layers = state.params["blocks"]["layers"]
    assert {x.shape[0] for x in jax.tree.leaves(layers)} == {32}
    assert num_parameters(layers) / 32 == 4 * 1280**2 + 8 * 1280**2 + 13 * 1280


def test_megatron_cuts_heads_and_hidden_units():
    fn, args = vit.targets["b_16"]()
    plan = mw.partition(
        fn, {"model": 4}, [mw.megatron("model", vocabulary=False)]
    ).plan(*args)
    layers = "state.params.blocks.layers"
    cut = {leaf.path: leaf.spec for leaf in plan.inputs}
    assert cut[f"{layers}.attention.q.kernel"][2] == ("model",)
    assert cut[f"{layers}.attention.out.kernel"][1] == ("model",)
    assert cut[f"{layers}.mlp.up.kernel"][2] == ("model",)
    assert cut[f"{layers}.mlp.down.kernel"][1] == ("model",)


@pytest.mark.slow
def test_the_small_model_learns_the_images():
    losses = [row["loss"] for row in vit.workload.train(0, 100)]
    assert losses[0] > 1.9
    assert np.mean(losses[-10:]) < 0.9
