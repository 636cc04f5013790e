from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from zoo import captions, multimodal
from zoo.captions import AUDIO, IMAGE, TEXT, Task, made_batches
from zoo.images import COLOURS, SHAPES
from zoo.multimodal import Config, Multimodal

TASK = Task(size=16, patch=8, frames=6, hop=32, bands=4)
CONFIG = Config(
    multimodal.MULTI_QUERY(1, 16, 4, 32, 256, TASK.sequence, batch=8),
    TASK.patch, TASK.patches, TASK.bands, TASK.frames,
)  # fmt: skip
MODEL = Multimodal(CONFIG)


@pytest.fixture(scope="module")
def params():
    """Weights as drawn."""
    return jax.jit(partial(multimodal.init, MODEL))(jax.random.key(0))


@pytest.fixture(scope="module")
def batch():
    return next(made_batches(TASK, 8, seed=0))


@pytest.fixture(scope="module")
def scores_of(params):
    """Scores [B, S, V] of a batch."""
    return jax.jit(lambda batch: MODEL.apply({"params": params}, batch))


def order(*segments):
    """Kinds [1, S] of segments written as ("text", 3)."""
    names = {"text": TEXT, "image": IMAGE, "audio": AUDIO}
    return np.array([[names[kind] for kind, n in segments for _ in range(n)]], np.int32)


# -- the model ---------------------------------------------------------------------

ORDERS = {
    "image first": order(("image", 4), ("text", 2), ("audio", 6)),
    "audio first": order(("audio", 6), ("text", 2), ("image", 4)),
    "text first": order(("text", 2), ("audio", 6), ("image", 4)),
    "by turns": order(*4 * [("image", 1), ("audio", 1)], ("audio", 2), ("text", 2)),
    "less than all": order(("text", 8), ("image", 3), ("audio", 1)),
}  # fmt: skip


@pytest.mark.parametrize("name", ORDERS)
def test_patches_and_frames_take_the_places_of_their_kind_in_order(name, params):
    kinds, rng = ORDERS[name], np.random.default_rng(0)
    batch = {
        "tokens": rng.integers(0, 256, kinds.shape),
        "kinds": kinds,
        "patches": rng.normal(size=(1, TASK.patches, 3 * TASK.patch**2)),
        "frames": rng.normal(size=(1, TASK.frames, TASK.bands)),
    }
    got = MODEL.apply({"params": params}, batch, method="embed")
    patches, frames = iter(batch["patches"][0]), iter(batch["frames"][0])
    for position, kind in enumerate(kinds[0]):
        if kind == TEXT:
            token = batch["tokens"][0, position]
            wanted = params["decoder"]["embedding"]["embedding"][token]
        else:
            layer = params["patch" if kind == IMAGE else "frame"]
            value = next(patches if kind == IMAGE else frames)
            wanted = value @ layer["kernel"] + layer["bias"]
        np.testing.assert_allclose(got[0, position], wanted, rtol=1e-4, atol=1e-5)


def test_places_without_a_feature_are_no_numbers():
    got = multimodal.in_order(
        jnp.ones((1, 2, 3)), jnp.array([[True, False, True, True]])
    )
    np.testing.assert_array_equal(jnp.isnan(got[0, :, 0]), [False, False, False, True])


def test_the_order_of_picture_and_sound_counts(batch, scores_of):
    both = [
        scores_of({**batch, "kinds": captions.layout(TASK, np.full(8, first))})
        for first in (False, True)
    ]
    gap = abs(both[0] - both[1])[:, TASK.caption_start :]
    assert (gap.max(axis=(1, 2)) > 1e-3).all()


@pytest.mark.parametrize("what", ["tokens", "patches", "frames"])
def test_no_position_hears_of_a_later_one(what, batch, scores_of):
    kind = {"tokens": TEXT, "patches": IMAGE, "frames": AUDIO}[what]
    last = batch[what].copy()
    last[:, -1] += 1
    changed = np.array([np.flatnonzero(row == kind)[-1] for row in batch["kinds"]])
    gap = abs(scores_of({**batch, what: last}) - scores_of(batch)).max(axis=-1)
    for row, first in zip(gap, changed, strict=True):
        assert not row[:first].any()
        assert row[first] > 0


@pytest.mark.parametrize("what", ["patches", "frames"])
def test_another_picture_or_sound_changes_what_is_told(what, batch, scores_of):
    other = {**batch, what: np.roll(batch[what], 1, axis=0)}
    gap = abs(scores_of(other) - scores_of(batch))[:, TASK.caption_start :]
    assert (gap.max(axis=(1, 2)) > 1e-3).all()


def test_only_targets_count_in_the_loss(batch, params, scores_of):
    loss = jax.jit(partial(multimodal.loss, MODEL))
    chances = np.asarray(jax.nn.softmax(scores_of(batch)))
    nats = [
        -np.log(chances[row, position, batch["targets"][row, position]])
        for row, position in zip(*np.nonzero(batch["targets"] >= 0), strict=True)
    ]
    assert float(loss(params, batch)) == pytest.approx(np.mean(nats), rel=1e-5)


def test_a_caption_is_the_best_byte_after_each_one_and_reads_no_text_of_its_own(
    params, batch, scores_of
):
    first = TASK.caption_start
    tell = jax.jit(partial(multimodal.caption, MODEL), static_argnums=2)
    told = tell(params, batch, first)
    blank = {
        **batch,
        "tokens": np.where(np.arange(TASK.sequence) < first, batch["tokens"], 7),
    }
    np.testing.assert_array_equal(told, tell(params, blank, first))
    text = np.array(batch["tokens"])
    text[:, first:] = told
    best = jnp.argmax(scores_of({**batch, "tokens": text}), axis=-1)
    np.testing.assert_array_equal(told, best[:, first - 1 : -1])


@pytest.mark.parametrize("name", [*multimodal.SIZES, "tiny"])
def test_keys_and_values_have_one_head_for_all_queries(name):
    config = multimodal.SIZES.get(name, multimodal.TINY)
    start = partial(multimodal.init, Multimodal(config))
    layers = jax.eval_shape(start, jax.random.key(0))["decoder"]["stack"]["layers"]
    heads = {
        what: layers["attention"][what]["kernel"].shape[-2] for what in ("q", "k", "v")
    }
    assert heads == {"q": config.decoder.heads, "k": 1, "v": 1}
    assert config.decoder.heads > 1


@pytest.mark.parametrize("name", ["nano1_32k", "nano2_32k"])
def test_the_whole_context_has_the_weights_of_the_short_one(name):
    shapes = [
        jax.tree.map(lambda leaf: leaf.shape, multimodal.targets[each]()[1][0].params)
        for each in (name, name.removesuffix("_32k"))
    ]
    assert multimodal.SIZES[name].decoder.sequence == 32_768
    assert shapes[0] == shapes[1]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"patch": 0}, "patch is at least 1, not 0"),
        ({"frames": 0}, "frames is at least 1, not 0"),
        (
            {"patches": TASK.sequence - TASK.frames},
            f"{TASK.sequence - 6} patches and 6 frames leave no text in a sequence of "
            f"{TASK.sequence}",
        ),
    ],
)
def test_a_bad_configuration_says_what_is_wrong(change, words):
    with pytest.raises(ValueError, match=words):
        replace(CONFIG, **change)


def test_heads_that_do_not_divide_are_refused():
    with pytest.raises(ValueError, match="3 heads do not divide d_model 16"):
        multimodal.MULTI_QUERY(1, 16, 3, 32, 256, 64, batch=8)


# -- the made documents ------------------------------------------------------------


def test_every_colour_and_shape_has_a_name():
    assert len(captions.COLOUR_NAMES) == len(COLOURS)
    assert len(captions.PICTURES) == len(COLOURS) * len(SHAPES) == 16
    colours = {name.split()[0]: tuple(np.sign(c)) for name, c in zip(
        captions.COLOUR_NAMES, COLOURS, strict=True)}  # fmt: skip
    assert colours == {
        "red": (1, -1, -1), "green": (-1, 1, -1), "blue": (-1, -1, 1),
        "yellow": (1, 1, -1),
    }  # fmt: skip


def test_a_caption_names_both_in_the_order_in_which_they_came():
    assert captions.caption(1, 2, sound_first=False) == "red square, high rising tone"
    assert captions.caption(15, 1, sound_first=True) == "low falling tone, yellow cross"


def test_a_document_is_newline_segment_newline_segment_newline_caption():
    kinds = captions.layout(TASK, np.array([False, True]))
    text = ("text", 1)
    caption = ("text", 1 + captions.LONGEST)
    image, audio = ("image", TASK.patches), ("audio", TASK.frames)
    for row, (first, second) in zip(
        kinds, [(image, audio), (audio, image)], strict=True
    ):
        np.testing.assert_array_equal(row, order(text, first, text, second, caption)[0])
    assert kinds.shape[1] == TASK.sequence


def test_targets_are_the_bytes_of_the_caption_and_its_end(batch):
    for tokens, targets in zip(batch["tokens"], batch["targets"], strict=True):
        told = targets != captions.NO_TARGET
        places = np.flatnonzero(told)
        assert places[0] == TASK.caption_start - 1
        np.testing.assert_array_equal(np.diff(places), 1)
        np.testing.assert_array_equal(targets[places], tokens[places + 1])
        words = bytes(targets[told].astype(np.uint8)).decode()
        assert words.endswith(" tone\n") or " tone, " in words
        assert captions.to_words(tokens[None, TASK.caption_start :]) == [words[:-1]]


def test_the_longest_caption_fits():
    every = [
        captions.caption(picture, tone, sound_first)
        for picture in range(16)
        for tone in range(4)
        for sound_first in (False, True)
    ]
    assert len(set(every)) == 128
    assert max(map(len, every)) + 1 == captions.LONGEST


def test_patches_are_squares_of_the_picture_row_by_row():
    image = np.arange(2 * 6 * 6 * 3, dtype=np.float32).reshape(2, 6, 6, 3)
    patches = captions.to_patches(image, 2)
    assert patches.shape == (2, 9, 12)
    np.testing.assert_array_equal(patches[1, 5], image[1, 2:4, 4:6].ravel())


@pytest.mark.parametrize(("number", "name"), list(enumerate(captions.TONES)))
def test_a_tone_is_as_high_as_its_name_says_and_goes_where_it_says(number, name):
    sound = captions.tone(task := Task(), number, np.random.default_rng(0))
    assert sound.shape == (task.frames * task.hop,)
    quarters = np.abs(np.fft.rfft(sound.reshape(4, -1) * np.hanning(len(sound) // 4)))
    pitch_hz = quarters.argmax(axis=1) * task.rate / (len(sound) // 4)
    assert ((pitch_hz > 700).all(), (pitch_hz < 700).all()) == (
        name.startswith("high"), name.startswith("low"),
    )  # fmt: skip
    assert (pitch_hz[-1] > pitch_hz[0]) == ("rising" in name)


def test_the_same_seed_makes_the_same_documents():
    first, again, other = (next(made_batches(TASK, 8, seed)) for seed in (1, 1, 2))
    for name, value in first.items():
        np.testing.assert_array_equal(value, again[name])
    assert (first["patches"] != other["patches"]).any()


def test_patches_that_do_not_tile_a_picture_are_refused():
    with pytest.raises(
        ValueError, match="patches of 5 pixels do not tile a picture of 16"
    ):
        Task(size=16, patch=5)


# -- training ----------------------------------------------------------------------


@pytest.mark.slow
def test_what_is_told_right_is_what_greedy_captions_tell_right():
    curve = []
    model = Multimodal(multimodal.TINY)
    step = jax.jit(multimodal.train_step(model))
    state = jax.jit(partial(multimodal.start, model))(jax.random.key(0))
    documents = made_batches(multimodal.TASK, multimodal.TINY.decoder.batch, seed=0)
    for _ in range(100):
        state, loss = step(state, next(documents))
        curve.append(float(loss))
    assert curve[0] > 5.0
    assert curve[-1] < 0.15
    batch, first = next(documents), multimodal.TASK.caption_start
    _, accuracy = jax.jit(partial(multimodal.measure, model))(state.params, batch)
    told = jax.jit(partial(multimodal.caption, model), static_argnums=2)(
        state.params, batch, first
    )
    right = np.equal(
        captions.to_words(told), captions.to_words(batch["tokens"][:, first:])
    )
    assert float(accuracy) == pytest.approx(np.mean(right))
    assert np.mean(right) > 0.1  # a guess is right in one of 64
