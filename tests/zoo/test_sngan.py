from dataclasses import replace
from functools import partial
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from zoo import sngan
from zoo.sliced import sliced_distance
from zoo.sngan_networks import ClassNorm, double, halve
from zoo.spectral import first_vectors, largest_singular_value, normalise
from zoo.workload import num_parameters

SMALL = replace(
    sngan.TINY, size=8, generator=(8, 8), discriminator=(8, 8), halvings=1,
    batch=8, classes=2, noise=4,
)  # fmt: skip


@pytest.fixture(scope="module")
def small():
    """One step of the smallest networks that have every part, and its arguments."""
    state = jax.jit(partial(sngan.start, SMALL))(jax.random.key(0))
    batch = next(sngan.batches(SMALL, seed=0))
    return jax.jit(sngan.train_step_of(SMALL)), state, batch


def singular_values(weight):
    return np.linalg.svd(np.asarray(weight).reshape(-1, weight.shape[-1]))[1]


@pytest.mark.parametrize("shape", [(3, 3, 5, 7), (6, 4), (4, 1)])
def test_power_iteration_finds_the_largest_singular_value(shape):
    keys = jax.random.split(jax.random.key(1))
    weight = jax.random.normal(keys[0], shape)
    vector = jax.random.normal(keys[1], shape[-1:])
    largest, before = singular_values(weight)[0], 0.0
    for _ in range(200):
        value, vector = largest_singular_value(weight, vector)
        assert before - 1e-4 <= value <= largest + 1e-4, "from below, ever nearer"
        before = float(value)
    assert before == pytest.approx(largest, rel=1e-3)
    assert float(jnp.linalg.norm(vector)) == pytest.approx(1, rel=1e-5)


def test_a_gradient_sees_the_singular_vectors_as_fixed():
    """At the limit it is the outer product of the left and the right one."""
    weight = jax.random.normal(jax.random.key(2), (5, 3))
    left, _, right = np.linalg.svd(np.asarray(weight), full_matrices=False)
    gradient = jax.grad(lambda w: largest_singular_value(w, right[0])[0])(weight)
    np.testing.assert_allclose(gradient, np.outer(left[:, 0], right[0]), atol=1e-3)


def test_normalised_weights_have_a_largest_singular_value_of_one():
    keys = jax.random.split(jax.random.key(0), 3)
    conv, dense = jax.random.normal(keys[0], (3, 3, 4, 5)), jnp.eye(6)[:, :1] * 7
    params = {
        "block": {"conv": {"kernel": conv, "bias": 9 + jnp.zeros(5)}},
        "last": dense,
    }
    vectors, turn = first_vectors(params, keys[1]), jax.jit(normalise)
    assert jax.tree.map(jnp.shape, vectors) == {
        "block": {"conv": {"kernel": (5,)}}, "last": (1,),
    }  # fmt: skip
    for _ in range(100):
        weights, vectors = turn(params, vectors)
    found = weights["block"]["conv"]["kernel"]
    assert singular_values(found)[0] == pytest.approx(1, rel=0.01)
    assert singular_values(weights["last"])[0] == pytest.approx(1, rel=1e-5)
    np.testing.assert_array_equal(weights["block"]["conv"]["bias"], 9)


def test_hinge_loss_is_zero_once_all_are_told_apart():
    assert sngan.hinge(jnp.array([1.0, 4.0]), jnp.array([-1.0, -2.0])) == 0
    assert sngan.hinge(jnp.array([0.0, 1.0]), jnp.array([0.0, 1.0])) == 0.5 + 1.5


def test_doubling_and_halving_give_the_image_back():
    x = jax.random.normal(jax.random.key(0), (2, 4, 4, 3))
    assert double(x).shape == (2, 8, 8, 3)
    np.testing.assert_allclose(halve(double(x)), x, rtol=1e-6)


def test_a_class_has_a_scale_and_a_bias_of_its_own():
    norm = ClassNorm(2, is_training=True)
    x = jax.random.normal(jax.random.key(0), (4, 4, 4, 8))
    label = jnp.array([0, 0, 1, 1])
    variables = norm.init(jax.random.key(1), x, label)
    plain, _ = norm.apply(variables, x, label, mutable=["batch_stats"])
    np.testing.assert_allclose(jnp.mean(plain, axis=(0, 1, 2)), 0, atol=1e-5)
    np.testing.assert_allclose(jnp.std(plain, axis=(0, 1, 2)), 1, rtol=1e-3)
    params = {
        "scale": {"embedding": jnp.array([8 * [1.0], 8 * [3.0]])},
        "bias": {"embedding": jnp.array([8 * [0.0], 8 * [5.0]])},
    }
    variables = {"params": params, "batch_stats": variables["batch_stats"]}
    changed, _ = norm.apply(variables, x, label, mutable=["batch_stats"])
    np.testing.assert_allclose(changed[:2], plain[:2], rtol=1e-5)
    np.testing.assert_allclose(changed[2:], 3 * plain[2:] + 5, rtol=1e-5)


def test_a_class_enters_the_discriminator_by_its_embedding_alone(small):
    _, state, batch = small
    image, params = batch["image"][:, 0], state.params.discriminator
    score = jax.jit(partial(sngan.score, SMALL))
    zeros, ones = jnp.zeros(8, jnp.int32), jnp.ones(8, jnp.int32)
    apart = score(params, image, zeros) - score(params, image, ones)
    assert float(jnp.abs(apart).max()) > 1e-3
    blind = params | {"embedding": jax.tree.map(jnp.zeros_like, params["embedding"])}
    same = score(blind, image, zeros) - score(blind, image, ones)
    np.testing.assert_array_equal(same, 0)


@pytest.mark.slow
def test_a_step_updates_the_discriminator_several_times_and_the_generator_once(small):
    step, state, batch = small
    after, losses = step(state, batch)
    assert int(after.optimizer.discriminator[0].count) == SMALL.updates == 2
    assert int(after.optimizer.generator[0].count) == 1
    assert np.isfinite([float(loss) for loss in losses]).all()
    assert jax.tree.map(jnp.shape, after) == jax.tree.map(jnp.shape, state)


@pytest.mark.parametrize("taught", ["generator", "discriminator"])
def test_a_network_stands_still_while_the_other_learns(taught, small):
    _, state, batch = small
    teach = jax.jit(partial(getattr(sngan, f"teach_{taught}"), SMALL))
    after, _ = teach(state, {name: x[:, 0] for name, x in batch.items()})
    for name in ("generator", "discriminator"):
        before, now = getattr(state.params, name), getattr(after.params, name)
        same = jax.tree.map(lambda a, b: bool((a == b).all()), before, now)
        assert all(jax.tree.leaves(same)) == (name != taught)


def test_a_sample_does_not_depend_on_the_others(small):
    _, state, batch = small
    noise, label = batch["noise"][:, 0], batch["fake_label"][:, 0]
    sample = jax.jit(partial(sngan.sample, SMALL, state))
    together = sample(noise, label)
    assert together.shape == (8, 8, 8, 3)
    np.testing.assert_allclose(sample(noise[:1], label[:1]), together[:1], atol=1e-5)


def test_batches_are_the_same_for_the_same_seed():
    runs = [next(sngan.batches(SMALL, seed)) for seed in (1, 1, 2)]
    assert {name: x.shape[:2] for name, x in runs[0].items()} == {
        "image": (8, 2), "label": (8, 2), "noise": (8, 4), "fake_label": (8, 4),
    }  # fmt: skip
    for name, x in runs[0].items():
        np.testing.assert_array_equal(x, runs[1][name])
        assert (x != runs[2][name]).any()


def test_a_distance_is_zero_in_any_order_and_grows_with_a_shift():
    images = np.random.default_rng(0).normal(size=(2, 16, 12)).astype(np.float32)
    shifts = (0.0, 0.5, 1.0)
    zero, near, far = (
        float(sliced_distance(images, images[:, ::-1] + shift)) for shift in shifts
    )
    assert zero == pytest.approx(0, abs=1e-6)
    assert 0 < near < far == pytest.approx(2 * near, rel=0.01)


def conv(width, before, after, bias):
    return (width * width * before + bias) * after


def test_the_cifar_networks_have_the_parameters_of_the_authors():
    """Less the biases that a norm takes away, and with one for the last score."""
    _, (state, _) = sngan.targets["cifar10"]()
    block = 2 * conv(3, 256, 256, 0) + conv(1, 256, 256, 0) + 2 * 2 * 10 * 256
    made = 129 * 4096 + 3 * block + 2 * 256 + conv(3, 256, 3, 1)
    assert num_parameters(state.params.generator) == made
    first = conv(3, 3, 128, 1) + conv(3, 128, 128, 1) + conv(1, 3, 128, 1)
    others = 6 * conv(3, 128, 128, 1) + conv(1, 128, 128, 1)
    assert num_parameters(state.params.discriminator) == first + others + 129 + 1280


def test_the_imagenet_networks_have_the_parameters_of_the_authors():
    _, (state, _) = sngan.targets["imagenet"]()
    widths = (1024, 1024, 512, 256, 128, 64)
    pairs = list(pairwise(widths))
    made = 129 * 16 * 1024 + 2 * 64 + conv(3, 64, 3, 1)
    for a, b in pairs:
        made += conv(3, a, b, 0) + conv(3, b, b, 0) + conv(1, a, b, 0)
        made += 2 * 1000 * (a + b)
    assert num_parameters(state.params.generator) == made
    judge = conv(3, 3, 64, 1) + conv(3, 64, 64, 1) + conv(1, 3, 64, 1)
    for b, a in pairs[1:]:
        judge += conv(3, a, a, 1) + conv(3, a, b, 1) + conv(1, a, b, 1)
    judge += 2 * conv(3, 1024, 1024, 1) + 1025 + 1000 * 1024
    assert num_parameters(state.params.discriminator) == judge


def test_every_weight_of_the_discriminator_has_a_vector():
    _, (state, _) = sngan.targets["imagenet"]()
    weights = [
        (path, leaf.shape[-1:])
        for path, leaf in jax.tree.leaves_with_path(state.params.discriminator)
        if leaf.ndim > 1
    ]
    vectors = jax.tree.leaves_with_path(state.stats.discriminator)
    assert weights == [(path, vector.shape) for path, vector in vectors]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"size": 24}, "1 doublings make images of 8 pixels, not 24"),
        ({"halvings": 3}, "2 blocks cannot halve 8 pixels 3 times"),
        ({"updates": 0}, "updates is at least 1, not 0"),
        ({"halvings": -1}, "halvings is at least 0, not -1"),
        ({"generator": (8, 0)}, "generator is at least 1, not 0"),
    ],
)
def test_a_bad_configuration_says_what_is_wrong(change, words):
    with pytest.raises(ValueError, match=words):
        replace(SMALL, **change)


@pytest.mark.slow
def test_training_brings_samples_nearer_to_real_images():
    rows = [row["distance"] for row in sngan.train(seed=0, steps=100)]
    others = sngan.unseen(sngan.TINY, 32, seed=1)
    floor = sliced_distance(jnp.asarray(sngan.unseen(sngan.TINY, 32, seed=2)), others)
    assert rows[0] > 0.4
    assert float(floor) < np.mean(rows[-10:]) < 0.25


@pytest.mark.slow
def test_samples_of_each_class_stand_above_images_of_it(tmp_path):
    sngan.write_samples(tmp_path / "a.png", seed=0, steps=1)
    with Image.open(tmp_path / "a.png") as picture:
        assert picture.size == (16 * 16 * 4, 4 * 16 * 4)
        pixels = np.asarray(picture)
    red, green = pixels[128:192], pixels[192:]
    assert red[..., 0].max() > red[..., 1].max()
    assert green[..., 1].max() > green[..., 0].max()
