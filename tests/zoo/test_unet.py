import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from zoo import diffusion, unet
from zoo.images import made_batches
from zoo.workload import num_parameters


def shapes_of(name):
    _, (state, _) = unet.targets[name]()
    return state.params


def blocks(params, start):
    return [n for n in params if n.startswith(start) and not n.endswith("attention")]


def test_the_net_of_partir_has_nine_blocks_down_twelve_up_and_attention_between():
    params = shapes_of("partir")
    assert [len(blocks(params, s)) for s in ("down_", "middle_", "up_")] == [9, 2, 12]
    attention = [name for name in params if name.endswith("attention")]
    assert attention == ["middle_0_attention"]
    assert params[attention[0]]["Attention_0"]["q"]["kernel"].shape == (768, 16, 48)


def test_one_tensor_of_partirs_net_has_no_dim_that_eight_devices_divide():
    """As in its table: all but one gradient and the loss become reduce-scatters."""
    leaves = jax.tree.leaves(shapes_of("partir"))
    whole = [x.shape for x in leaves if not any(d % 8 == 0 for d in x.shape)]
    assert whole == [(3,)]


@pytest.mark.parametrize(("name", "count"), [("ho_cifar10", 35.7e6), ("ho_256", 114e6)])
def test_parameters_are_those_of_ho(name, count):
    assert num_parameters(shapes_of(name)) == pytest.approx(count, rel=0.005)


def test_attention_follows_each_block_of_its_size():
    params = shapes_of("ho_cifar10")
    found = sorted(name for name in params if name.endswith("attention"))
    at_16 = ["down_1_0", "down_1_1", "middle_0", "up_1_0", "up_1_1", "up_1_2"]
    assert found == [f"{name}_attention" for name in at_16]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"size": 18, "multipliers": (1, 2, 4)}, "18 pixels cannot be halved 2 times"),
        ({"groups": 12}, "12 groups of a norm do not divide 32 channels"),
        ({"heads": 5}, "5 heads do not divide the 64 channels at size 8"),
        (
            {"heads": 64, "attention": (16,)},
            "64 heads do not divide the 32 channels at size 16",
        ),
        ({"multipliers": ()}, "between each of 0 levels"),
        ({"attention": (7,)}, "no level has size 7; there are [16, 8]"),
    ],
)
def test_a_config_that_does_not_fit_says_why(changes, words):
    sizes = {"size": 16, "channels": 32, "multipliers": (1, 2), "blocks": 1}
    with pytest.raises(ValueError, match=re.escape(words)):
        unet.Config(**{**sizes, "heads": 4, "batch": 8, **changes})


@pytest.mark.parametrize("steps", [100, 1000])
def test_the_schedule_ends_in_noise(steps):
    betas, left = diffusion.noise_schedule(steps)
    assert left[0] > 0.99
    assert left[-1] < 1e-4
    assert np.all(np.diff(left) < 0)
    assert np.all((betas > 0) & (betas < 1))


def test_too_few_steps_to_reach_noise_are_refused():
    with pytest.raises(ValueError, match="20 steps reach noise too soon; 21 or more"):
        diffusion.noise_schedule(20)
    assert diffusion.noise_schedule(21)[0].max() < 1


def test_noise_is_added_without_a_change_of_variance():
    key, other = jax.random.split(jax.random.key(0))
    image = jax.random.normal(key, (4, 32, 32, 3))
    noise = jax.random.normal(other, image.shape)
    noisy = diffusion.add_noise(image, noise, jnp.array([1.0, 0.7, 0.3, 0.0]))
    np.testing.assert_allclose(noisy[0], image[0], atol=1e-6)
    np.testing.assert_allclose(noisy[3], noise[3], atol=1e-6)
    np.testing.assert_allclose(jnp.var(noisy, axis=(1, 2, 3)), 1.0, atol=0.08)


def test_a_net_that_knows_the_noise_leads_back_to_the_image():
    image = jnp.asarray(next(made_batches(2, 8, 4, seed=0))["image"])
    _, left = diffusion.noise_schedule(50)

    def net(x, time):
        a = left[time][:, None, None, None]
        noise = (x - jnp.sqrt(a) * image) / jnp.sqrt(1 - a)
        return jnp.sqrt(a) * noise - jnp.sqrt(1 - a) * image

    found = diffusion.sample(net, jax.random.key(0), image.shape, 50)
    np.testing.assert_allclose(found, image, atol=1e-4)


def test_an_image_with_nothing_left_is_all_noise():
    x = jax.random.normal(jax.random.key(0), (2, 4, 4, 3))
    found = diffusion.noise_in(lambda x, time: 0 * x + 9, x, jnp.ones(2), jnp.zeros(2))
    np.testing.assert_array_equal(found, x)


def test_times_are_told_apart():
    features = diffusion.time_features(jnp.arange(100), 16)
    distance = jnp.linalg.norm(features[:, None] - features, axis=-1)
    assert jnp.min(distance + 9 * jnp.eye(100)) > 0.1


def test_the_nearest_image_is_found():
    known = np.stack([np.zeros((2, 2, 3)), np.ones((2, 2, 3))])
    images = np.stack([np.full((2, 2, 3), 0.9), np.full((2, 2, 3), 0.3)])
    assert diffusion.nearest(images, known) == pytest.approx((0.1 + 0.3) / 2)


def test_a_grid_is_written_row_by_row(tmp_path):
    shades = np.linspace(-1, 1, 4)[:, None, None, None]
    diffusion.write_grid(tmp_path / "a.png", shades * np.ones((4, 2, 2, 3)), 2, zoom=3)
    with Image.open(tmp_path / "a.png") as picture:
        pixels = np.asarray(picture)
    assert pixels.shape == (12, 12, 3)
    assert pixels[::6, ::6, 0].tolist() == [[0, 85], [170, 255]]


@pytest.mark.slow
def test_samples_are_closer_to_the_data_than_noise(tmp_path):
    images = unet.write_samples(tmp_path / "samples.png", seed=0, steps=100)
    config = unet.TINY
    batches = unet.batches(config, seed=1)
    known = np.concatenate([next(batches)["image"] for _ in range(16)])
    noise = np.random.default_rng(0).normal(size=images.shape).clip(-1, 1)
    assert np.isfinite(images).all()
    assert diffusion.nearest(images, known) < 0.45 * diffusion.nearest(noise, known)
    with Image.open(tmp_path / "samples.png") as picture:
        assert picture.size == (16 * config.size * 4, 4 * config.size * 4)
