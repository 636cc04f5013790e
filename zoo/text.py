"""Real text as bytes: any files of the user, or the one that lies in `data`."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

DATA = Path(__file__).parent / "data"

Batch = dict[str, np.ndarray]


def load_text(*paths: str | Path) -> np.ndarray:
    """The bytes of text files, one after another, uint8 [T]; without paths, of ours."""
    chosen = [Path(p) for p in paths] or sorted(DATA.glob("*.txt"))
    return np.concatenate([np.frombuffer(p.read_bytes(), np.uint8) for p in chosen])


def batches(
    tokens: np.ndarray, batch: int, sequence: int, seed: int
) -> Iterator[Batch]:
    """Batches without end, the same for the same seed: windows from all over the text.

    Each is inputs and targets, int32 [batch, sequence]; targets are the inputs one
    position later, so that no program has to slice them.
    """
    if len(tokens) <= sequence:
        raise ValueError(
            f"a text of {len(tokens)} bytes has no window of {sequence} and a target; "
            "give a longer text or a shorter sequence"
        )
    rng = np.random.default_rng(seed)
    while True:
        starts = rng.integers(0, len(tokens) - sequence, batch)
        windows = tokens[starts[:, None] + np.arange(sequence + 1)].astype(np.int32)
        yield {"inputs": windows[:, :-1], "targets": windows[:, 1:]}


def to_text(tokens: np.ndarray) -> str:
    """Bytes as readable text; what is not UTF-8 becomes a replacement mark."""
    return np.asarray(tokens).astype(np.uint8).tobytes().decode(errors="replace")
