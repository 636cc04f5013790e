"""Real text as bytes: any files of the user, or the one in `data`."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from glob import glob, has_magic
from pathlib import Path
from typing import Any

import grain
import numpy as np

DATA = Path(__file__).parent / "data"

SUFFIX = ".txt"

Batch = dict[str, np.ndarray]


def load_text(*paths: str | Path) -> np.ndarray:
    """The bytes of text files, one after another, uint8 [T]; without paths, of ours.

    A path is a file, a folder (all of its .txt files, those of inner folders too), or a
    pattern such as "books/*.md"; files of a folder or pattern come in the order of their
    names. `ValueError` for one that is missing, matches nothing, or holds no text.
    """
    files = [file for path in paths or (DATA,) for file in list_files(path)]
    texts = [read_file(file) for file in files]
    if not sum(map(len, texts)):
        named = ", ".join(map(str, files))
        raise ValueError(f"there is no text in {named}: 0 bytes")
    return np.concatenate(texts)


def list_files(path: str | Path) -> list[Path]:
    """The files that a file's path, a folder or a pattern names; at least one."""
    place = Path(path)
    if place.is_file():
        return [place]
    if place.is_dir():
        found = sorted(file for file in place.rglob(f"*{SUFFIX}") if file.is_file())
        if not found:
            raise ValueError(
                f"the folder {place} holds no text; wanted files ending in {SUFFIX}, or "
                f"a pattern such as {place}/*.md"
            )
        return found
    if not has_magic(str(path)):
        raise ValueError(f"there is no file or folder {place}")
    found = sorted(
        file
        for name in glob(str(path), recursive=True)
        if (file := Path(name)).is_file()
    )
    if not found:
        raise ValueError(f"no file matches the pattern {path}")
    return found


def read_file(file: Path) -> np.ndarray:
    """The bytes of a file, uint8; `ValueError` with its name if it cannot be read."""
    try:
        return np.frombuffer(file.read_bytes(), np.uint8)
    except OSError as error:
        raise ValueError(f"{file} cannot be read: {error}") from error


@dataclass(frozen=True, slots=True)
class Windows:
    """All windows of a text, numbered by where they start, as grain reads them."""

    tokens: np.ndarray
    sequence: int

    def __post_init__(self) -> None:
        if self.sequence < 1:
            raise ValueError(f"a window has a token at least, not {self.sequence}")
        if len(self.tokens) <= self.sequence:
            raise ValueError(
                f"a text of {len(self.tokens)} bytes has no window of {self.sequence} "
                "and a target; give a longer text or a shorter sequence"
            )

    def __len__(self) -> int:
        return len(self.tokens) - self.sequence

    def __getitem__(self, start: int) -> np.ndarray:
        """`sequence` tokens and the one after them."""
        return self.tokens[start : start + self.sequence + 1]


def batches(
    tokens: np.ndarray, batch: int, sequence: int, seed: int
) -> Iterator[Batch]:
    """Batches without end, the same for the same seed: windows from all over the text.

    Each is inputs and targets, int32 [batch, sequence]; targets are the inputs one
    position later, so that no program has to slice them. No window comes twice before
    all have come once.
    """
    source: Any = Windows(tokens, sequence)
    windows = grain.MapDataset.source(source).seed(seed).shuffle().repeat()
    # A window is a slice: threads that read ahead would cost more than they save.
    here = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)
    return iter(windows.batch(batch, batch_fn=_shifted).to_iter_dataset(here))


def _shifted(windows: Sequence[np.ndarray]) -> Batch:
    rows = np.stack(windows).astype(np.int32)
    return {"inputs": rows[:, :-1], "targets": rows[:, 1:]}


def to_text(tokens: np.ndarray) -> str:
    """Bytes as readable text; invalid UTF-8 becomes replacement characters."""
    return np.asarray(tokens).astype(np.uint8).tobytes().decode(errors="replace")
