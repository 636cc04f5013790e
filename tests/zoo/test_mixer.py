import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import meshwright as mw
from zoo import mixer
from zoo.workload import num_parameters


def test_counts_round_to_the_millions_of_the_paper():
    counts = {name: mixer.num_weights(size) for name, size in mixer.SIZES.items()}
    assert {name: round(count / 1e6) for name, count in counts.items()} == {
        "s_32": 19, "s_16": 18, "b_32": 60, "b_16": 59, "l_32": 206, "l_16": 207,
        "h_14": 431,
    }  # fmt: skip


def test_a_patch_that_does_not_divide_the_image_is_refused():
    words = re.escape("patches of 12 pixels do not divide images of 32 pixels")
    with pytest.raises(ValueError, match=words):
        mixer.Config(2, 64, 32, 128, patch=12, size=32)


def test_one_number_of_one_patch_reaches_all_of_a_block():
    block = mixer.Block(token_width=8, channel_width=32)
    x = jax.random.normal(jax.random.key(0), (1, 4, 16))
    apply = jax.jit(lambda x: block.init_with_output(jax.random.key(1), x)[0])
    changed = apply(x.at[0, 2, 5].add(1.0)) - apply(x)
    assert jnp.min(jnp.abs(changed)) > 1e-6


def test_token_mixing_keeps_channels_apart():
    mlp = mixer.Mlp(8, bias=True)
    x = jax.random.normal(jax.random.key(0), (1, 4, 16))

    @jax.jit
    def mix(x):
        y, _ = mlp.init_with_output(jax.random.key(1), x.swapaxes(1, 2))
        return y.swapaxes(1, 2)

    changed = mix(x.at[:, :, 3].add(1.0)) - mix(x)
    assert set(np.flatnonzero(jnp.max(jnp.abs(changed), axis=(0, 1)))) == {3}


def test_layers_are_traced_once():
    _, (state, _) = mixer.targets["l_16"]()
    layers = state.params["blocks"]["layers"]
    assert {x.shape[0] for x in jax.tree.leaves(layers)} == {24}
    both = 2 * 196 * 512 + 512 + 196 + 2 * 1024 * 4096 + 4096 + 1024 + 4 * 1024
    assert num_parameters(layers) == 24 * both


def test_megatron_cuts_the_hidden_units_of_both_mlps():
    fn, args = mixer.targets["b_16"]()
    plan = mw.partition(
        fn, {"model": 4}, [mw.megatron("model", vocabulary=False)]
    ).plan(*args)
    layers = "state.params.blocks.layers"
    cut = {leaf.path: leaf.spec for leaf in plan.inputs}
    for name in ("tokens", "channels"):
        assert cut[f"{layers}.{name}.up.kernel"][2] == ("model",)
        assert cut[f"{layers}.{name}.down.kernel"][1] == ("model",)


@pytest.mark.slow
def test_the_small_model_learns_the_images():
    losses = [row["loss"] for row in mixer.workload.train(0, 100)]
    assert losses[0] > 1.9
    assert np.mean(losses[-10:]) < 0.9
