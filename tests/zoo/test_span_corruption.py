import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zoo.span_corruption import (
    END,
    FIRST_BYTE,
    PAD,
    T5,
    VOCAB,
    Corruption,
    batches,
    corrupt,
    from_bytes,
    is_sentinel,
    noise_mask,
    restore,
    to_bytes,
)
from zoo.text import load_text

TEXT = load_text()

CORRUPTIONS = st.builds(Corruption, st.floats(0.05, 0.5), st.floats(1, 10))


@st.composite
def examples(draw):
    """A text as tokens, a corruption, and a mask of it."""
    corruption = draw(CORRUPTIONS)
    text = draw(st.binary(min_size=2, max_size=200))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    tokens = from_bytes(np.frombuffer(text, np.uint8))
    return tokens, corruption, noise_mask(len(tokens), corruption, rng)


@given(examples())
def test_inputs_and_targets_together_restore_the_text(example):
    tokens, _, mask = example
    np.testing.assert_array_equal(restore(*corrupt(tokens, mask)), tokens)


@given(examples())
def test_lengths_depend_on_the_length_of_the_text_alone(example):
    tokens, corruption, mask = example
    inputs, targets = corrupt(tokens, mask)
    assert (len(inputs), len(targets)) == corruption.lengths(len(tokens))


@given(examples())
def test_a_mask_drops_the_promised_tokens_in_the_promised_spans(example):
    tokens, corruption, mask = example
    starts = mask & ~np.concatenate([[False], mask[:-1]])
    assert (mask.sum(), starts.sum()) == corruption.counts(len(tokens))
    assert not mask[0]
    assert mask[-1]


@given(examples())
def test_sentinels_count_down_from_the_end_of_the_vocabulary(example):
    tokens, corruption, mask = example
    _, spans = corruption.counts(len(tokens))
    expected = [VOCAB - 1 - i for i in range(spans)]
    for side in corrupt(tokens, mask):
        assert [t for t in side.tolist() if is_sentinel(t)] == expected
        assert side[-1] == END


@given(st.integers(4, 600), CORRUPTIONS)
def test_the_longest_text_that_fits_is_taken(inputs, corruption):
    length = corruption.text_length(inputs)
    assert corruption.lengths(length)[0] <= inputs < corruption.lengths(length + 1)[0]


@given(st.integers(4, 2000))
def test_the_papers_examples_fill_their_inputs_exactly(inputs):
    assert T5.lengths(T5.text_length(inputs))[0] == inputs


def test_512_inputs_are_568_tokens_of_text_and_114_targets():
    assert T5.text_length(512) == 568
    assert T5.counts(568) == (85, 28)
    assert T5.lengths(568) == (512, 114)


def test_an_example_by_hand():
    tokens = from_bytes(np.frombuffer(b"Thank you", np.uint8))
    mask = np.array([0, 1, 1, 0, 0, 0, 0, 0, 1], bool)
    t, h, a, n, k, space, y, o, u = tokens.tolist()
    inputs, targets = corrupt(tokens, mask)
    assert inputs.tolist() == [t, 383, n, k, space, y, o, 382, END]
    assert targets.tolist() == [383, h, a, 382, u, END]


def test_spans_are_three_tokens_long_on_average_and_of_all_places():
    rng = np.random.default_rng(0)
    masks = np.stack([noise_mask(568, T5, rng) for _ in range(300)])
    share = masks[:, 5:-5].mean(axis=0)
    assert masks.mean() == pytest.approx(85 / 568)
    assert share.std() < 0.04
    starts = masks[:, 1:] & ~masks[:, :-1]
    assert masks.sum() / starts.sum() == pytest.approx(85 / 28)


def test_what_a_model_writes_without_all_sentinels_can_be_read():
    a, b = FIRST_BYTE + 65, FIRST_BYTE + 66
    inputs = np.array([a, 383, b, 382, END])
    assert to_bytes(restore(inputs, np.array([383, b, b, END]))).tobytes() == b"ABBB"
    assert to_bytes(restore(inputs, np.array([a, a, PAD]))).tobytes() == b"AB"


def test_batches_are_corrupted_windows_of_the_text():
    found = [batch for _, batch in zip(range(3), batches(TEXT, 4, 64, 0), strict=False)]
    for batch in found:
        assert batch["inputs"].shape == (4, 64)
        assert batch["targets"].shape == batch["decoder_inputs"].shape == (4, 14)
        assert all(x.dtype == np.int32 for x in batch.values())
        assert (batch["decoder_inputs"][:, 0] == PAD).all()
        shifted = batch["decoder_inputs"][:, 1:]
        np.testing.assert_array_equal(shifted, batch["targets"][:, :-1])
        for inputs, targets in zip(batch["inputs"], batch["targets"], strict=True):
            assert to_bytes(restore(inputs, targets)).tobytes() in TEXT.tobytes()
    assert all((a["inputs"] != b["inputs"]).any() for a, b in pairwise(found))


def test_batches_are_the_same_for_the_same_seed():
    first, again, other = (next(batches(TEXT, 4, 64, s))["inputs"] for s in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Corruption(density=1.0), "between 0 and 1 of the tokens, not 1.0"),
        (lambda: Corruption(mean_span=0.5), "mean_span is 1 token or more"),
        (lambda: Corruption(mean_span=math.nan), "a finite number, not nan"),
        (lambda: Corruption(density=-1.0), "density is a share between 0 and 1"),
        (lambda: T5.counts(1), "a text of 1 tokens has none to drop and one to keep"),
        (lambda: T5.text_length(2), "inputs of 2 tokens hold no text; they need 3"),
        (lambda: next(batches(TEXT[:70], 2, 64, 0)), "no window of 70"),
        (
            lambda: next(batches(TEXT, 2, 4000, 0)),
            "spans are more than the 125 sentinels",
        ),
    ],
)
def test_what_does_not_fit_says_why(make, words):
    with pytest.raises(ValueError, match=words):
        make()
