"""Span corruption over bytes: the task on which T5 is trained before all others.

Raffel et al., "Exploring the Limits of Transfer Learning with a Unified Text-to-Text
Transformer", JMLR 2020, section 3.1.4: 15 % of the tokens are dropped, in spans of 3 on
average; a sentinel stands for each span in the inputs, and before its tokens in the
targets. How many tokens and spans there are depends on the length alone, so every example
fills its arrays exactly and nothing is padded.

Tokens are those of ByT5 (Xue et al., TACL 2022): three special ones, then the bytes;
sentinels count down from the end of the vocabulary.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from typing import Any

import grain
import numpy as np

from zoo.text import Windows

PAD, END = 0, 1

FIRST_BYTE = 3
"""The token of byte 0; token 2 stands for what no vocabulary has, and is not used."""

VOCAB = 384
"""3 special tokens, 256 bytes, 125 sentinels; ByT5's size, and a multiple of 128."""

Batch = dict[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class Corruption:
    """The share of dropped tokens, and the mean length of spans."""

    density: float = 0.15
    mean_span: float = 3.0

    def __post_init__(self) -> None:
        if not 0 < self.density < 1:
            raise ValueError(
                f"density is a share between 0 and 1 of the tokens, not {self.density}"
            )
        if not 1 <= self.mean_span < inf:
            raise ValueError(
                f"mean_span is 1 token or more, a finite number, not {self.mean_span}"
            )

    def counts(self, length: int) -> tuple[int, int]:
        """Tokens dropped of a text of `length`, and the spans that they form."""
        if length < 2:
            raise ValueError(
                f"a text of {length} tokens has none to drop and one to keep"
            )
        dropped = min(max(round(length * self.density), 1), length - 1)
        spans = max(round(dropped / self.mean_span), 1)
        return dropped, min(spans, length - dropped)

    def lengths(self, length: int) -> tuple[int, int]:
        """Inputs and targets of a text of `length`: sentinels and ends counted."""
        dropped, spans = self.counts(length)
        return length - dropped + spans + 1, dropped + spans + 1

    def text_length(self, inputs: int) -> int:
        """The longest text whose inputs are no longer than `inputs`."""
        if inputs < self.lengths(2)[0]:
            raise ValueError(
                f"inputs of {inputs} tokens hold no text; they need "
                f"{self.lengths(2)[0]} at least"
            )
        length = 2
        while self.lengths(length + 1)[0] <= inputs:
            length += 1
        return length


T5 = Corruption()
"""That of the paper's models."""


def noise_mask(
    length: int, corruption: Corruption, rng: np.random.Generator
) -> np.ndarray:
    """True [length] where a token is dropped: kept and dropped spans alternate.

    The first span is kept, the last is dropped, none is empty.
    """
    dropped, spans = corruption.counts(length)
    parts = (_parts(length - dropped, spans, rng), _parts(dropped, spans, rng))
    widths = np.stack(parts, axis=1).ravel()
    return np.repeat(np.arange(2 * spans) % 2 == 1, widths)


def _parts(total: int, count: int, rng: np.random.Generator) -> np.ndarray:
    """`count` positive numbers with sum `total`, all such lists equally likely."""
    cuts = 1 + np.sort(rng.choice(total - 1, count - 1, replace=False))
    return np.diff(np.concatenate([[0], cuts, [total]]))


def corrupt(tokens: np.ndarray, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and targets of a text: each keeps its spans, and sentinels for the other.

    mask: true where a token is dropped from the inputs.
    """
    starts = mask & ~np.concatenate([[False], mask[:-1]])
    sentinels = VOCAB - np.cumsum(starts)
    if starts.sum() > VOCAB - FIRST_BYTE - 256:
        raise ValueError(
            f"{starts.sum()} spans are more than the {VOCAB - FIRST_BYTE - 256} "
            "sentinels of the vocabulary; give shorter inputs or longer spans"
        )
    inputs = np.where(starts, sentinels, tokens)[~mask | starts]
    pairs = np.stack([sentinels, tokens], axis=1)
    targets = pairs[np.stack([starts, mask], axis=1)]
    return np.append(inputs, END), np.append(targets, END)


def restore(inputs: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """The text that `corrupt` was given: each sentinel is replaced by its span.

    A sentinel without a span in the targets is dropped, as are special tokens, so that
    what a model writes can be read too.
    """
    spans: dict[int, list[int]] = {}
    span: list[int] = []
    for token in np.asarray(targets).tolist():
        if is_sentinel(token):
            span = spans.setdefault(token, [])
        elif token >= FIRST_BYTE:
            span.append(token)
    text: list[int] = []
    for token in np.asarray(inputs).tolist():
        kept = [token] if token >= FIRST_BYTE else []
        text += spans.get(token, []) if is_sentinel(token) else kept
    return np.array(text, np.int32)


def is_sentinel(token: int) -> bool:
    """Whether a token stands for a span."""
    return token >= FIRST_BYTE + 256


def from_bytes(text: np.ndarray) -> np.ndarray:
    """Tokens of bytes."""
    return text.astype(np.int32) + FIRST_BYTE


def to_bytes(tokens: np.ndarray) -> np.ndarray:
    """Bytes of tokens; special ones and sentinels are left out."""
    kept = (tokens >= FIRST_BYTE) & (tokens < FIRST_BYTE + 256)
    return (tokens[kept] - FIRST_BYTE).astype(np.uint8)


@dataclass(frozen=True, slots=True)
class _Example:
    """An encoder's inputs, a decoder's inputs and its targets, of one window of text."""

    corruption: Corruption

    def __call__(self, window: np.ndarray, rng: np.random.Generator) -> Batch:
        tokens = from_bytes(window[:-1])
        inputs, targets = corrupt(tokens, noise_mask(len(tokens), self.corruption, rng))
        return {
            "inputs": inputs.astype(np.int32),
            "decoder_inputs": np.append(PAD, targets[:-1]).astype(np.int32),
            "targets": targets.astype(np.int32),
        }


def batches(
    text: np.ndarray, batch: int, inputs: int, seed: int, corruption: Corruption = T5
) -> Iterator[Batch]:
    """Batches without end, the same for the same seed: windows from all over a text.

    text: bytes, uint8 [T]. Each batch has "inputs" [batch, I], "decoder_inputs" and
    "targets" [batch, O], int32, with (I, O) = corruption.lengths(text_length(inputs)); a
    decoder's inputs are its targets one position later, behind a PAD.
    """
    source: Any = Windows(text, corruption.text_length(inputs))
    windows = grain.MapDataset.source(source).seed(seed).shuffle().repeat()
    # A window is small: threads that read ahead would cost more than they save.
    here = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)
    examples = windows.random_map(_Example(corruption))
    return iter(examples.batch(batch).to_iter_dataset(here))
