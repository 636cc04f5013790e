import json
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from meshwright.program.capture import capture
from zoo import parallel_wavenet, wavenet
from zoo.audio import STEP
from zoo.dilated import Net
from zoo.logistics import draw_noise
from zoo.once import once
from zoo.parallel_wavenet import Drawn, Student, cross_entropy, entropy, power
from zoo.wavenet_sampler import generate

FLOW = Net(1, 2, channels=8, gate=4, skip=None)
SMALL = replace(
    parallel_wavenet.TINY,
    teacher=replace(
        wavenet.TINY,
        net=Net(1, 2, channels=8, gate=4, skip=8),
        mixtures=2,
        window=64,
        hop=4,
        features=5,
    ),
    flows=(FLOW, replace(FLOW, stacks=2)),
    frame=16,
)
SAMPLES = 12


@cache
def first_student():
    return once(partial(parallel_wavenet.init, SMALL))(jax.random.key(0))


@cache
def first_teacher():
    return once(partial(wavenet.init, SMALL.teacher))(jax.random.key(0))


@pytest.fixture(scope="module")
def flow():
    """A student far from its start, as a function of noise: audio, mean, log of scale."""
    params = jax.tree.map(jnp.asarray, first_student())  # with dicts of its own
    for i in range(len(SMALL.flows)):
        kernel = params[f"head_{i}"]["outputs"]["kernel"]
        params[f"head_{i}"]["outputs"]["kernel"] = kernel * 10
    features = jax.random.normal(jax.random.key(1), (2, SAMPLES // 4, 5))
    return jax.jit(
        lambda z: Student(SMALL.flows).apply({"params": params}, z, features)
    )


@pytest.fixture(scope="module")
def noise():
    """Of two waveforms [2, T]."""
    return jax.random.logistic(jax.random.key(2), (2, SAMPLES))


# -- the student's flow -----------------------------------------------------------------


def test_each_sample_is_its_noise_scaled_and_moved(flow, noise):
    drawn = flow(noise)
    expected = noise * jnp.exp(drawn.log_scale) + drawn.mean
    np.testing.assert_allclose(drawn.audio, expected, atol=1e-5)
    assert np.std(drawn.log_scale) > 0.05
    assert np.std(drawn.mean) > 0.05


def test_noise_is_found_again_from_audio_one_sample_after_the_other(flow, noise):
    audio, found = flow(noise).audio, jnp.zeros_like(noise)
    for _ in range(SAMPLES):  # each pass makes one more sample right
        told = flow(found)
        found = (audio - told.mean) * jnp.exp(-told.log_scale)
    # What is rounded in one sample is heard by all after it.
    np.testing.assert_allclose(found, noise, atol=2e-3)


def test_the_sum_of_log_scales_is_the_log_determinant_of_the_jacobian(flow, noise):
    jacobian = jax.jacobian(lambda one: flow(jnp.stack([one, noise[1]])).audio[0])
    found = jacobian(noise[0])
    np.testing.assert_array_equal(found, jnp.tril(found))
    sign, log_determinant = jnp.linalg.slogdet(found)
    assert sign == 1
    expected = flow(noise).log_scale[0].sum()
    assert log_determinant == pytest.approx(float(expected), abs=1e-4)


def test_a_sample_is_told_from_noise_before_it(flow, noise):
    before, after = flow(noise), flow(noise.at[:, 6:].add(1.0))
    for i, name in enumerate(Drawn._fields):
        same = 6 + (name != "audio")  # the sample itself hears its own noise
        np.testing.assert_array_equal(before[i][:, :same], after[i][:, :same])
        assert (before[i][:, same] != after[i][:, same]).all()


def test_no_flow_of_any_weights_overflows(noise):
    params = jax.tree.map(lambda leaf: leaf * 100, first_student())
    apply = once(Student(SMALL.flows).apply)
    drawn = apply({"params": params}, noise, jnp.ones((2, 3, 5)))
    assert all(jnp.isfinite(leaf).all() for leaf in drawn)
    centre = parallel_wavenet.START_LOG_SCALE * len(SMALL.flows)
    reach = parallel_wavenet.REACH * len(SMALL.flows)
    assert jnp.abs(drawn.log_scale - centre).max() <= reach


def loops(fn, *args):
    """Turns of all scans in a program, with those inside others."""
    ops = list(capture(fn, args).program.walk())
    assert not any(op.kind == "while" for op in ops)
    return sorted(op.params["length"] for op in ops if op.kind == "scan")


def test_the_student_has_no_loop_over_samples_and_the_teacher_one():
    features = jnp.zeros((1, 16, 5))
    key = jax.random.key(0)
    teacher, student = first_teacher(), first_student()
    noise = draw_noise(key, (1, 64), SMALL.teacher.mixtures)
    one_pass = partial(parallel_wavenet.generate, SMALL)
    assert loops(one_pass, student, features, key) == [1, 2]
    loop = partial(generate, SMALL.teacher)
    assert loops(loop, teacher, features, noise) == [64]


def test_the_stored_run_was_twenty_times_faster_than_the_teachers_loop():
    """`python -m benchmarks zoo wavenet_speed` makes it: the published size, one CPU."""
    stored = Path(__file__).parents[2] / "benchmarks" / "results" / "wavenet_speed.json"
    rows = {row["case"]: row for row in json.loads(stored.read_text())["rows"]}
    assert rows["published"]["teacher_layers"] == 30
    assert rows["published"]["lowest_ratio"] > 20


def test_generated_audio_is_levels_of_16_bits():
    features = jnp.zeros((3, 16, 5))
    one_pass = jax.jit(partial(parallel_wavenet.generate, SMALL))
    audio = np.asarray(one_pass(first_student(), features, jax.random.key(1)))
    assert audio.shape == (3, 64)
    np.testing.assert_array_equal(audio / STEP, np.round(audio / STEP))
    assert len(np.unique(audio)) > 100


# -- the divergence from student to teacher ---------------------------------------------


def log_logistic(x, mean, log_scale):
    z = np.abs(x - mean) * np.exp(-log_scale)
    return -z - 2 * np.log1p(np.exp(-z)) - log_scale


def surprise(teacher, student):
    """Of a logistic about draws of another, by sums over a fine grid, in nats."""
    x, width = np.linspace(-20, 20, 400_001, retstep=True)
    mass = np.exp(log_logistic(x, *student)) * width
    return -mass @ log_logistic(x, *teacher)


def teacher_that_says(mean, log_scale):
    """Weights of a teacher that tells one logistic for every sample."""
    params = jax.tree.map(jnp.zeros_like, first_teacher())
    bias = jnp.array([0.0, 0.0, mean, mean, log_scale, log_scale])
    params["head"]["outputs"]["bias"] = bias
    return params


compiled_cross_entropy = once(partial(cross_entropy, SMALL))


def student_that_says(mean, log_scale):
    shape = (2, 16)
    return Drawn(jnp.zeros(shape), jnp.full(shape, mean), jnp.full(shape, log_scale))


def test_the_entropy_of_a_logistic_is_the_log_of_its_scale_and_two():
    found = entropy(student_that_says(0.3, -1.2))
    assert found == pytest.approx(surprise((0.3, -1.2), (0.3, -1.2)), abs=1e-4)


@pytest.mark.parametrize(
    ("teacher", "student"),
    [
        ((0.1, -2.0), (0.1, -2.0)),
        ((0.1, -2.0), (-0.2, -3.0)),
        ((0.0, -3.0), (0.2, -1.0)),
    ],
    ids=["equal", "narrower student", "wider student"],
)
def test_the_cross_entropy_is_the_teachers_surprise(teacher, student):
    told = teacher_that_says(*teacher)
    drawn, features = student_that_says(*student), jnp.zeros((2, 4, 5))
    noise = jax.random.logistic(jax.random.key(1), (4000, 2, 16))
    found = compiled_cross_entropy(told, drawn, features, noise)
    expected = surprise(teacher, student)
    assert found == pytest.approx(expected, rel=0.01, abs=0.01)
    divergence = found - entropy(drawn)
    assert divergence > (-0.01 if teacher == student else 0.3)


# -- the power loss ---------------------------------------------------------------------


def test_power_is_the_mean_over_time_of_windowed_spectra():
    audio = np.random.default_rng(0).normal(size=(2, 70)).astype(np.float32)
    window = np.hanning(16)
    frames = [audio[:, start : start + 16] * window for start in range(0, 49, 8)]
    spectra = np.abs(np.fft.rfft(np.stack(frames, axis=1))) ** 2 / 8
    np.testing.assert_allclose(power(audio, 16), spectra.mean(axis=1), rtol=1e-4)


def test_the_power_loss_does_not_hear_where_a_tone_begins():
    t = 2 * np.pi * np.arange(256) / 8
    tone, moved, louder = np.sin(t)[None], np.sin(t + 1.0)[None], 1.5 * np.sin(t)[None]
    loss = partial(parallel_wavenet.power_loss, frame=64)
    assert loss(tone, tone) == 0
    assert loss(moved, tone) < 1e-4 * loss(louder, tone)
    higher = np.sin(2 * t)[None]
    assert loss(higher, tone) > loss(louder, tone) > 0.01


# -- distillation -----------------------------------------------------------------------


def test_the_student_is_four_flows_of_64_channels():
    _, (state, batch) = parallel_wavenet.targets["student"]()
    layer = 2 * (3 * 64 * 32 + 32 * 32 + 32) + 32 * 64
    head = 64 * 64 + 64 + 64 * 2 + 2
    found = sum(leaf.size for leaf in jax.tree.leaves(state.params))
    assert found == 60 * layer + 4 * (3 * 64 + head)
    assert state.params["flow_3"]["filter"].shape == (3, 10, 3, 64, 32)
    assert batch["audio"].shape == (32, 7680)


@pytest.mark.slow
def test_the_teacher_stays_as_it_is_while_its_student_learns():
    teacher = first_teacher()
    *_, (state, _) = parallel_wavenet.learn(SMALL, teacher, seed=0, steps=2)
    same = jax.tree.map(np.array_equal, state.stats["teacher"], teacher)
    assert all(jax.tree.leaves(same))
    first = first_student()
    assert not np.array_equal(first["flow_0"]["on"], state.params["flow_0"]["on"])


@pytest.mark.slow
def test_the_tiny_student_learns_what_its_teacher_says():
    """Teacher and student learn in turn; the divergence of the first is one of noise."""
    losses = [row["loss"] for row in parallel_wavenet.train(seed=0, steps=60)]
    assert np.mean(losses[-5:]) < 0.5 * np.mean(losses[:3])


# -- bad configurations -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"flows": ()}, "a student has one flow or more"),
        ({"flows": (replace(FLOW, skip=4),)}, "read from its channels: its `skip` is"),
        ({"draws": 0}, "draws is at least 1, not 0"),
        ({"frame": 15}, "a frame of 15 samples: wanted an even number"),
        ({"frame": 128}, "up to the window of 64"),
    ],
)
def test_a_config_that_does_not_fit_says_why(changes, words):
    with pytest.raises(ValueError, match=words):
        replace(SMALL, **changes)
