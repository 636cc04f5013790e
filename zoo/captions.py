"""Generated documents: a picture and a sound in either order, then a caption of both.

A picture shows one of `zoo.images`' shapes in a colour, a sound is a short tone, low or
high, that rises or falls. The caption names them in the order in which they came, as
bytes: "red square, high rising tone". In a document of S positions

    newline, picture or sound, newline, sound or picture, newline, caption

a picture takes one position for each patch, a sound one for each frame, text one for each
byte; `kinds` has the kind of each position. Pictures and sounds are random, so that only
the caption is a target.

Letters: B batch, S positions, N patches, P pixels of a patch's side, F frames, C bands.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

from zoo.audio import band_power, to_levels
from zoo.images import SHAPES, draw
from zoo.workload import check_numbers

TEXT, IMAGE, AUDIO = range(3)
"""The kinds of positions."""

NO_TARGET = -1
"""The target of a position after which nothing is to be told."""

COLOUR_NAMES = ("red", "green", "blue", "yellow")
"""Of `zoo.images.COLOURS`, in their order."""

PICTURES = tuple(f"{c} {shape}" for c, shape in product(COLOUR_NAMES, SHAPES))
"""What pictures are called, by the number of their class."""

TONES = tuple(
    f"{pitch} {glide} tone"
    for pitch, glide in product(("low", "high"), ("rising", "falling"))
)
"""What sounds are called, by the number of their class."""

CENTRES_HZ = ((300, 450), (1100, 1600))
"""Bounds of the middle pitch of a tone, if low and if high; it glides by an octave."""

END = ord("\n")

LONGEST = max(map(len, PICTURES)) + len(", ") + max(map(len, TONES)) + 1
"""Bytes of a caption and its end, at most."""

Batch = dict[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class Task:
    """The sizes of pictures and sounds.

    size, patch: pixels of the sides of a picture, and of each of its patches.
    frames, hop, bands: how many frames a sound has, samples between them, and bands.
    rate: samples a second.
    """

    size: int = 16
    patch: int = 4
    frames: int = 16
    hop: int = 128
    bands: int = 16
    rate: int = 8000

    def __post_init__(self) -> None:
        check_numbers(self)
        if self.size % self.patch:
            raise ValueError(
                f"patches of {self.patch} pixels do not tile a picture of {self.size}"
            )

    @property
    def patches(self) -> int:
        """N."""
        return (self.size // self.patch) ** 2

    @property
    def caption_start(self) -> int:
        """The position of a caption's first byte."""
        return self.patches + self.frames + 3

    @property
    def sequence(self) -> int:
        """S."""
        return self.caption_start + LONGEST


def made_batches(task: Task, batch: int, seed: int) -> Iterator[Batch]:
    """Batches without end of new documents, the same for the same seed.

    `tokens`, `kinds`, `targets` [B, S], `patches` [B, N, P * P * 3], `frames` [B, F, C].
    """
    rng = np.random.default_rng(seed)
    while True:
        pictures = rng.integers(0, len(PICTURES), batch)
        tones = rng.integers(0, len(TONES), batch)
        sound_first = rng.integers(0, 2, batch).astype(bool)
        yield {
            **text(task, pictures, tones, sound_first),
            "kinds": layout(task, sound_first),
            "patches": to_patches(draw(pictures, task.size, rng), task.patch),
            "frames": np.stack([_frames(task, tone, rng) for tone in tones]),
        }


def layout(task: Task, sound_first: np.ndarray) -> np.ndarray:
    """The kind of every position [B, S], for each of the orders [B]."""
    parts = [[IMAGE] * task.patches, [AUDIO] * task.frames]
    caption = [TEXT] * (1 + LONGEST)
    orders = [
        [TEXT, *first, TEXT, *second, *caption]
        for first, second in (parts, parts[::-1])
    ]
    return np.array(orders, np.int32)[sound_first.astype(int)]


def caption(picture: int, tone: int, sound_first: bool) -> str:
    """The caption of a picture and a tone."""
    parts = (PICTURES[picture], TONES[tone])
    return ", ".join(parts[::-1] if sound_first else parts)


def text(
    task: Task, pictures: np.ndarray, tones: np.ndarray, sound_first: np.ndarray
) -> Batch:
    """`tokens` and `targets` [B, S]: newlines and captions, and the byte after each.

    The end is a target, the newlines that fill the rest are none.
    """
    shape = (len(pictures), task.sequence)
    tokens, targets = np.full(shape, END, np.int32), np.full(shape, NO_TARGET, np.int32)
    start = task.caption_start
    for row, told in enumerate(map(caption, pictures, tones, sound_first)):
        codes = [*told.encode(), END]
        tokens[row, start : start + len(codes)] = codes
        targets[row, start - 1 : start - 1 + len(codes)] = codes
    return {"tokens": tokens, "targets": targets}


def to_words(tokens: np.ndarray) -> list[str]:
    """The captions, up to their ends, of bytes [B, T]."""
    lines = (bytes(np.asarray(row, np.uint8)) for row in tokens)
    return [line.split(b"\n")[0].decode("latin-1") for line in lines]


def to_patches(image: np.ndarray, patch: int) -> np.ndarray:
    """Patches [B, N, P * P * 3] of pictures [B, H, H, 3], row by row."""
    count, size = len(image), image.shape[1] // patch
    tiles = image.reshape(count, size, patch, size, patch, 3).swapaxes(2, 3)
    return tiles.reshape(count, size * size, -1)


def tone(task: Task, number: int, rng: np.random.Generator) -> np.ndarray:
    """A waveform of class `number`, [F * hop] samples; pitch and loudness vary."""
    high, falling = divmod(number, 2)
    octaves = np.linspace(-0.5, 0.5, task.frames * task.hop) * (-1 if falling else 1)
    pitch_hz = rng.uniform(*CENTRES_HZ[high]) * 2.0**octaves
    phase = 2 * np.pi * (np.cumsum(pitch_hz) / task.rate + rng.uniform())
    hiss = rng.normal(0.0, 1e-3, len(phase))
    return to_levels(rng.uniform(0.2, 0.9) * np.sin(phase) + hiss)


def _frames(task: Task, number: int, rng: np.random.Generator) -> np.ndarray:
    return band_power(tone(task, number, rng), task.hop, task.bands)
