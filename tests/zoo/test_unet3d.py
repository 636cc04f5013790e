import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from zoo import unet3d
from zoo.workload import num_parameters


def test_cicek_counts_19069955_parameters():
    _, (state, _) = unet3d.targets["cicek"]()
    assert num_parameters(state.params) == 19_069_955


def test_mlperfs_net_has_thirty_one_million_parameters():
    _, (state, _) = unet3d.targets["mlperf"]()
    assert 31.0e6 < num_parameters(state.params) < 31.4e6


@pytest.mark.parametrize("name", unet3d.SIZES)
def test_every_voxel_gets_a_score_for_each_class(name):
    config = unet3d.SIZES[name]
    _, (state, batch) = unet3d.targets[name]()
    net = unet3d.UNet3D(config)
    scores = jax.eval_shape(net.apply, {"params": state.params}, batch["volume"])
    assert scores.shape == (*batch["label"].shape, config.classes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"norm": "layer"}, "there is no norm 'layer'; there are instance, batch"),
        ({"classes": 1}, "1 classes leave nothing to tell apart"),
        ({"size": 18}, "18 voxels a side cannot be halved 2 times"),
    ],
)
def test_a_config_that_does_not_fit_says_why(changes, words):
    sizes = {"size": 16, "inputs": 1, "classes": 3, "levels": 3 * ((8, 8),)}
    rest = {"norm": "batch", "is_strided": False, "batch": 1}
    with pytest.raises(ValueError, match=re.escape(words)):
        unet3d.Config(**{**sizes, **rest, **changes})


def test_dice_is_one_where_equal_and_nothing_where_disjoint():
    left = jnp.zeros((1, 4, 4, 4, 1)).at[:, :2].set(1)
    assert unet3d.dice(left, left)[0, 0] == pytest.approx(1)
    assert unet3d.dice(left, 1 - left)[0, 0] == pytest.approx(0, abs=1e-4)
    assert unet3d.dice(0 * left, 0 * left)[0, 0] == pytest.approx(1)
    half = left.at[:, 1].set(0)
    assert unet3d.dice(left, half)[0, 0] == pytest.approx(2 / 3, rel=1e-3)


def test_a_made_volume_holds_a_brighter_ball_within_a_ball():
    batch = next(unet3d.made_volumes(unet3d.TINY, seed=0))
    label, volume = batch["label"], batch["volume"][..., 0]
    for one in label:
        inside = np.argwhere(one > 0)
        bright = np.argwhere(one == 2)
        assert 0 < len(bright) < len(inside)
        assert np.all(bright >= inside.min(axis=0))
        assert np.all(bright <= inside.max(axis=0))
    shades = [volume[label == k].mean() for k in range(3)]
    np.testing.assert_allclose(shades, [0, 1, 2], atol=0.1)


def test_made_volumes_are_the_same_for_the_same_seed():
    first, again, other = (
        next(unet3d.made_volumes(unet3d.TINY, seed))["volume"] for seed in (3, 3, 4)
    )
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("kind", unet3d.NORMS)
def test_a_norm_has_mean_zero_and_variance_one_over_its_dims(kind):
    x = 3 + 2 * jax.random.normal(jax.random.key(0), (4, 4, 4, 4, 5))
    norm = unet3d.Norm(kind)
    y = norm.apply(norm.init(jax.random.key(1), x), x)
    dims = unet3d.NORMS[kind]
    np.testing.assert_allclose(jnp.mean(y, axis=dims), 0, atol=1e-5)
    np.testing.assert_allclose(jnp.var(y, axis=dims), 1, rtol=1e-3)


@pytest.mark.slow
def test_the_tiny_net_finds_the_balls():
    told = list(unet3d.train(seed=0, steps=50))
    assert told[-1]["loss"] < 0.4 * told[0]["loss"]
    assert np.mean([row["dice"] for row in told[-5:]]) > 0.7
