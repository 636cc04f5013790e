from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from zoo import wavenet
from zoo.audio import LEVELS, STEP
from zoo.dilated import Net, Trunk, causal_conv, delay
from zoo.logistics import Mixture, draw, draw_noise, log_density, log_mass
from zoo.once import once
from zoo.wavenet import WaveNet
from zoo.wavenet_sampler import generate

SMALL = replace(
    wavenet.TINY,
    net=Net(2, 3, channels=8, gate=4, skip=8),
    mixtures=3,
    window=48,
    hop=4,
    features=5,
    batch=2,
)

MIXTURES = {
    "wide": Mixture(*jnp.array([[0.3, -0.5], [-0.2, 0.6], [-1.5, -0.5]])),
    "narrow": Mixture(*jnp.array([[0.0, 1.0], [0.1, -0.3], [-9.0, -7.0]])),
    "outside": Mixture(*jnp.array([[0.0, 2.0], [1.4, -1.1], [-2.0, -3.0]])),
}
EACH = pytest.mark.parametrize("mixture", MIXTURES.values(), ids=MIXTURES)

ALL_LEVELS = (np.arange(LEVELS) - LEVELS // 2) * np.float32(STEP)


@pytest.fixture(scope="module")
def small():
    """Parameters whose mixtures stay between -1 and 1, and features."""
    params = once(partial(wavenet.init, SMALL))(jax.random.key(0))
    bias = params["head"]["outputs"]["bias"]
    params["head"]["outputs"]["bias"] = bias.at[-SMALL.mixtures :].set(-3.0)
    return params, jax.random.normal(jax.random.key(1), (2, 12, SMALL.features))


# -- mixtures of logistics --------------------------------------------------------------


def density(mixture, x):
    """By the formula of a logistic's density, in f64."""
    logits, means, log_scales = (np.asarray(part, np.float64) for part in mixture)
    far = np.exp(-np.abs(x[..., None] - means) / np.exp(log_scales))
    each = far / (1 + far) ** 2 / np.exp(log_scales)
    return each @ (np.exp(logits) / np.exp(logits).sum())


def integral(mixture, levels):
    """Of the density, from half a level below to half above each."""
    inside = (np.arange(1000) + 0.5) / 1000 - 0.5
    return density(mixture, levels[:, None] + inside * STEP).mean(axis=1) * STEP


@EACH
def test_the_masses_of_all_levels_sum_to_one(mixture):
    masses = np.exp(np.asarray(log_mass(mixture, ALL_LEVELS), np.float64))
    assert masses.sum() == pytest.approx(1, abs=2e-5)


@EACH
def test_a_level_has_the_integral_of_the_density_around_it(mixture):
    levels = np.array([-0.9, -0.3, 0.0999, 0.1, 0.1001, 0.59, 0.8])
    levels = np.round(levels / STEP) * STEP
    expected = np.log(np.maximum(integral(mixture, levels), 1e-200))
    found = log_mass(mixture, jnp.asarray(levels, jnp.float32))
    found = np.maximum(found, np.log(1e-200))
    np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-3)


@EACH
def test_the_first_and_last_level_take_the_tails(mixture):
    weights = np.asarray(jax.nn.log_softmax(mixture.logits), np.float64)
    scales = np.exp(np.asarray(mixture.log_scales, np.float64))
    found = log_mass(mixture, jnp.array([-1, 1 - STEP]))
    edges = (STEP / 2 - 1, 1 - 1.5 * STEP)
    for edge, sign, tail in zip(edges, (-1, 1), found, strict=True):
        each = weights - np.logaddexp(0, sign * (edge - mixture.means) / scales)
        assert tail == pytest.approx(np.logaddexp(*each), rel=1e-4)


def test_the_density_holds_between_levels_and_beyond_them():
    mixture = MIXTURES["wide"]
    x = np.array([-1.7, -0.123456, 0.7654321, 1.3])
    found = log_density(mixture, jnp.asarray(x, jnp.float32))
    np.testing.assert_allclose(found, np.log(density(mixture, x)), atol=1e-3)


def test_gradients_are_finite_where_a_level_is_all_but_impossible():
    levels = jnp.array([-1.0, 0.25, 1 - STEP])
    gradients = once(jax.vmap(jax.grad(log_mass), (None, 0)))(
        MIXTURES["narrow"], levels
    )
    assert all(jnp.isfinite(leaf).all() for leaf in gradients)


@EACH
def test_draws_have_the_masses_of_their_levels(mixture):
    noise = draw_noise(jax.random.key(0), (20_000,), 2)
    each = Mixture(*(jnp.broadcast_to(part, (20_000, 2)) for part in mixture))
    drawn = np.asarray(draw(each, noise))
    np.testing.assert_array_equal(drawn / STEP, np.round(drawn / STEP))
    assert drawn.min() >= -1
    assert drawn.max() <= 1 - STEP
    masses = np.exp(np.asarray(log_mass(mixture, ALL_LEVELS), np.float64))
    found = np.searchsorted(np.sort(drawn), ALL_LEVELS, side="right") / len(drawn)
    assert np.abs(found - masses.cumsum()).max() < 0.012  # Kolmogorov's 1 in 160


# -- dilated convolutions ---------------------------------------------------------------


def test_what_is_late_comes_after_silence():
    x = jnp.arange(1.0, 5.0)[None]
    np.testing.assert_array_equal(delay(x, 3), [[0, 0, 0, 1]])
    np.testing.assert_array_equal(delay(x, 9), [[0, 0, 0, 0]])
    np.testing.assert_array_equal(delay(x, 0), x)


@pytest.mark.parametrize(("size", "dilation"), [(2, 1), (3, 4), (3, 16)])
def test_a_causal_filter_is_a_padded_dilated_convolution(size, dilation):
    x = jax.random.normal(jax.random.key(0), (2, 20, 3))
    kernel = jax.random.normal(jax.random.key(1), (size, 3, 5))
    expected = jax.lax.conv_general_dilated(
        x, kernel, (1,), [((size - 1) * dilation, 0)], rhs_dilation=(dilation,),
        dimension_numbers=("NWC", "WIO", "NWC"),
    )  # fmt: skip
    np.testing.assert_allclose(causal_conv(x, kernel, dilation), expected, atol=1e-5)


@pytest.mark.parametrize(
    "net",
    [Net(1, 4, 4, 4, 4, kernel=2), Net(3, 3, 4, 4, 4)],
    ids=["1 stack of 4", "3 stacks of 3"],
)
def test_an_output_depends_on_just_its_receptive_field(net):
    heard, length = net.receptive_field, net.receptive_field + 7
    audio = jax.random.normal(jax.random.key(0), (1, length))
    features, trunk = jnp.ones((1, 1, 2)), Trunk(net)
    params = once(trunk.init)(jax.random.key(1), audio, features)

    def last(audio):
        return jnp.sum(trunk.apply(params, audio, features)[1][0, -1])

    touched = np.asarray(once(jax.grad(last))(audio))[0] != 0
    np.testing.assert_array_equal(touched, np.arange(length) >= length - heard)


def test_the_published_teacher_hears_a_quarter_of_a_second_within_its_window():
    config = wavenet.SIZES["teacher"]
    assert config.net.receptive_field == 3 + 3 * 2 * 1023 == 6141
    assert 0.25 < config.net.receptive_field / config.sampling_rate < 0.26
    assert config.net.receptive_field < config.window


def test_a_sample_is_told_from_those_before_it_and_its_frame(small):
    params, features = small
    audio = jax.random.normal(jax.random.key(2), (2, 48)) * 0.3
    tell = jax.jit(partial(WaveNet(SMALL).apply, {"params": params}))
    before = tell(audio, features)
    later = tell(audio.at[:, 20:].add(0.5), features)
    other = tell(audio, features.at[:, 5].add(1.0))  # samples 20 to 23
    for a, b, c in zip(before, later, other, strict=True):
        np.testing.assert_array_equal(a[:, :21], b[:, :21])
        assert (a[:, 21] != b[:, 21]).any()
        np.testing.assert_array_equal(a[:, :20], c[:, :20])
        assert (a[:, 20] != c[:, 20]).any()


# -- sampling ---------------------------------------------------------------------------


def test_queues_draw_the_samples_that_the_whole_net_draws_one_by_one(small):
    params, features = small
    noise = draw_noise(jax.random.key(3), (2, 48), SMALL.mixtures)

    def sample(t, audio):
        told = WaveNet(SMALL).apply({"params": params}, audio, features)
        return audio.at[:, t].set(draw(told, noise)[:, t])

    slow = jax.jit(lambda: jax.lax.fori_loop(0, 48, sample, jnp.zeros((2, 48))))()
    fast = jax.jit(partial(generate, SMALL))(params, features, noise)
    assert len(np.unique(slow)) > 80
    np.testing.assert_allclose(fast, slow, atol=2 * STEP)  # rounded the other way


def test_noise_of_another_length_than_the_frames_is_refused(small):
    params, features = small
    noise = draw_noise(jax.random.key(3), (2, 47), SMALL.mixtures)
    with pytest.raises(ValueError, match="noise for 47 samples, wanted 12 frames of 4"):
        generate(SMALL, params, features, noise)


# -- training ---------------------------------------------------------------------------


def test_the_teacher_is_its_layers_and_a_head():
    """Two dilated filters a layer, what they hear, a way on and one out; two layers."""
    _, (state, batch) = wavenet.targets["teacher"]()
    layer = 2 * (3 * 512 * 256 + 32 * 256 + 256) + 256 * 512 + 256 * 256
    head = 256 * 256 + 256 + 256 * 30 + 30
    found = sum(leaf.size for leaf in jax.tree.leaves(state.params))
    assert found == 3 * 512 + 30 * layer + head
    assert batch["audio"].shape == (32, 7680)
    assert batch["features"].shape == (32, 64, 32)


def test_averaged_weights_follow_the_last_ones():
    net = Net(1, 1, channels=4, gate=4, skip=4)
    config = replace(SMALL, net=net, average=0.75)
    state = once(partial(wavenet.start, config))(jax.random.key(0))
    batch = next(wavenet.made_batches(config, seed=0))
    after, _ = once(wavenet.train_step_for(config))(state, batch)
    first, last, near = state.params["head"], after.params["head"], after.stats["head"]
    expected = jax.tree.map(lambda a, b: 0.75 * a + 0.25 * b, first, last)
    jax.tree.map(partial(np.testing.assert_allclose, atol=1e-6), near, expected)
    assert not np.allclose(first["outputs"]["bias"], last["outputs"]["bias"], atol=1e-4)


@pytest.mark.slow
def test_the_tiny_teacher_learns_tones():
    losses = [row["loss"] for row in wavenet.train(seed=0, steps=120)]
    assert losses[0] > 9.5
    assert np.median(losses[60:]) < losses[0] - 1.5  # single batches vary by 2


# -- bad configurations -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"mixtures": 0}, "mixtures is at least 1, not 0"),
        ({"hop": 0}, "hop is at least 1, not 0"),
        ({"window": 500}, "a window of 500 samples is not of whole frames of 64"),
        ({"net": Net(1, 2, 4, 4, None)}, "read from its skip channels: give `skip`"),
    ],
)
def test_a_config_that_does_not_fit_says_why(changes, words):
    with pytest.raises(ValueError, match=words):
        replace(wavenet.TINY, **changes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"layers": 0}, "layers is at least 1, not 0"),
        ({"skip": 0}, "skip is at least 1, not 0"),
        ({"kernel": 1}, "a filter of 1 samples hears no past"),
    ],
)
def test_a_net_that_does_not_fit_says_why(changes, words):
    with pytest.raises(ValueError, match=words):
        replace(SMALL.net, **changes)


def test_samples_that_are_not_of_whole_frames_are_refused(small):
    params, features = small
    with pytest.raises(ValueError, match="47 samples are not of whole frames"):
        WaveNet(SMALL).apply({"params": params}, jnp.zeros((2, 47)), features)
