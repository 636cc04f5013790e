"""Audio in batches: folders of WAV and FLAC files, or generated tones; and WAV output.

A waveform has the levels of 16-bit PCM: k / 32768 for whole k from -32768 to 32767. A
batch is `audio` [B, T] and `features` [B, F, C]: for each of the F = T / hop frames the
power in C bands, the input of a vocoder. Letters: B batch, T samples, F frames, C bands.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import grain
import numpy as np
import soundfile

LEVELS = 2**16
"""Of 16-bit PCM."""

STEP = 2 / LEVELS
"""Between two levels of a waveform from -1 to 1."""

SUFFIXES = (".flac", ".wav")

QUIET = 1e-5
"""Power below which a band is silent: near that of the rounding to 16 bits."""

Batch = dict[str, np.ndarray]


class Source(Protocol):
    """Windows of audio by number, as grain reads them: float32 [T].

    window: T.
    """

    @property
    def window(self) -> int: ...

    def __len__(self) -> int: ...

    def __getitem__(self, index: Any, /) -> np.ndarray: ...


def to_levels(audio: np.ndarray) -> np.ndarray:
    """The nearest 16-bit level of each sample; louder samples are clipped."""
    whole = np.clip(np.round(audio / STEP), -LEVELS // 2, LEVELS // 2 - 1)
    return (whole * STEP).astype(np.float32)


def write_wav(path: str | Path, samples: np.ndarray, rate: int) -> None:
    """Write one channel [T], from -1 to 1, as 16-bit WAV of `rate` samples a second."""
    if np.ndim(samples) != 1:
        raise ValueError(f"a waveform has one dim, not shape {np.shape(samples)}")
    levels = np.round(to_levels(np.asarray(samples)) / STEP).astype(np.int16)
    soundfile.write(path, levels, rate, format="WAV", subtype="PCM_16")


@dataclass(frozen=True, slots=True)
class Piece:
    """A window of a file: `window` samples from `start` on."""

    path: Path
    start: int


@dataclass(frozen=True, slots=True)
class Recordings:
    """The windows of all files of a folder, read on demand; channels are averaged.

    Files shorter than a window and the rest at the end of a file are not used.
    """

    pieces: tuple[Piece, ...]
    window: int

    def __len__(self) -> int:
        return len(self.pieces)

    def __getitem__(self, index: Any, /) -> np.ndarray:
        piece = self.pieces[index]
        with _reading(piece.path):
            samples, _ = soundfile.read(
                piece.path, self.window, piece.start, dtype="float32", always_2d=True
            )
        return to_levels(samples.mean(axis=1))


def load_folder(folder: str | Path, window: int, rate: int) -> Recordings:
    """Windows of the WAV and FLAC files in and below `folder`.

    window: samples; rate: samples a second, that of all files. `ValueError` for a folder
    without such files, and for a file of another rate or that cannot be read.
    """
    if window < 1 or rate < 1:
        raise ValueError(f"window and rate are at least 1, not {window} and {rate}")
    folder = Path(folder)
    if not folder.is_dir():
        raise ValueError(f"there is no folder {folder}")
    files = sorted(p for p in folder.rglob("*") if p.suffix.lower() in SUFFIXES)
    if not files:
        raise ValueError(f"there is no file {' or '.join(SUFFIXES)} in {folder}")
    pieces = tuple(piece for file in files for piece in _pieces(file, window, rate))
    if not pieces:
        raise ValueError(f"no file in {folder} has {window} samples, one window")
    return Recordings(pieces, window)


def _pieces(path: Path, window: int, rate: int) -> Iterator[Piece]:
    with _reading(path):
        found = soundfile.info(path)
    if found.samplerate != rate:
        raise ValueError(
            f"{path} has {found.samplerate} samples a second, wanted {rate}; resample "
            f"it first, such as by ffmpeg -i {path.name} -ar {rate} resampled.wav"
        )
    for start in range(0, found.frames - window + 1, window):
        yield Piece(path, start)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """What cannot be read is a `ValueError` with the name of its file."""
    try:
        yield
    except (OSError, soundfile.LibsndfileError) as error:
        raise ValueError(f"{path} is no audio that can be read: {error}") from error


@dataclass(frozen=True, slots=True)
class Tones:
    """Generated audio: windows of plucked notes, each a sum of decaying harmonics.

    The k-th harmonic has strength 1 / k^2, as those of a string.
    count: how many windows there are. The same seed and number give the same window.
    notes: how many sound in a window, at most; pitches are those of a pentatonic scale.
    """

    count: int
    window: int
    rate: int
    seed: int
    notes: int = 3
    lowest_hz: float = 110.0

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: Any, /) -> np.ndarray:
        rng = np.random.default_rng((self.seed, int(index)))
        sound = np.zeros(self.window)
        for _ in range(rng.integers(1, self.notes + 1)):
            sound += self._note(rng)
        hiss = rng.normal(0.0, 1e-3, self.window)  # a recording is never quite silent
        return to_levels(sound / self.notes + hiss)

    def _note(self, rng: np.random.Generator) -> np.ndarray:
        semitone = rng.integers(3) * 12 + rng.choice((0, 2, 4, 7, 9))
        pitch_hz = self.lowest_hz * 2.0 ** (semitone / 12)
        start = rng.uniform(-0.5, 0.5) * self.window
        time_s = (np.arange(self.window) - start) / self.rate
        decay_per_s = rng.uniform(2.0, 8.0)
        sound = np.zeros(self.window)
        for harmonic in range(1, 9):
            if harmonic * pitch_hz < self.rate / 2:
                phase = 2 * np.pi * (harmonic * pitch_hz * time_s + rng.uniform())
                fading = np.exp(-decay_per_s * harmonic**0.5 * np.maximum(time_s, 0))
                sound += fading * np.sin(phase) / harmonic**2
        return np.where(time_s >= 0, sound, 0.0) * rng.uniform(0.3, 0.9)


def band_power(audio: np.ndarray, hop: int, bands: int) -> np.ndarray:
    """Log power in each frame's bands [F, C] of a window [T], about -1 to 1.

    A frame is two hops of samples through a Hann window.
    """
    weights = _bands(hop, bands)
    padded = np.pad(audio, (hop // 2, 2 * hop - hop // 2))
    starts = np.arange(0, len(audio), hop)
    frames = padded[starts[:, None] + np.arange(2 * hop)] * np.hanning(2 * hop)
    power = np.abs(np.fft.rfft(frames)) ** 2 / hop
    return (np.log10(power @ weights + QUIET) / 5 + 0.5).astype(np.float32)


def _bands(hop: int, bands: int) -> np.ndarray:
    """Each band's shares [hop + 1, C] of the bins: even over log(1 + bin / 16)."""
    place = np.log1p(np.arange(hop + 1) / 16) / np.log1p(hop / 16) * bands
    distance = np.abs(place[:, None] - 0.5 - np.arange(bands))
    shares = np.maximum(1 - distance, 0)
    total = shares.sum(axis=0)
    if not total.all():
        raise ValueError(
            f"{bands} bands are too many for frames of {2 * hop} samples: "
            "some hold no frequency; take fewer bands or a longer hop"
        )
    return shares / total


def batches(
    source: Source, batch: int, seed: int, hop: int, bands: int
) -> Iterator[Batch]:
    """Endless batches, shuffled for each pass; the same seed gives the same batches.

    hop: samples from one frame to the next, a divisor of the window's samples.
    """
    if batch < 1:
        raise ValueError(f"a batch has at least one window, not {batch}")
    if hop < 1 or bands < 1:
        raise ValueError(f"hop and bands are at least 1, not {hop} and {bands}")
    if source.window % hop:
        raise ValueError(
            f"a window of {source.window} samples is not of whole frames of {hop}; give "
            "a hop that divides it"
        )

    def example(audio: np.ndarray) -> Batch:
        return {"audio": audio, "features": band_power(audio, hop, bands)}

    windows: Any = grain.MapDataset.source(source).seed(seed).shuffle().repeat()
    return iter(windows.map(example).batch(batch).to_iter_dataset())
