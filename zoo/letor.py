"""Lists of items with features and graded labels: files in LETOR's format, or generated.

A line of a file is `2 qid:10 1:0.5 3:7 # comment`: label, query, features by number from
1 on, 0 if left out. MSLR-WEB30K, Istella and Yahoo's set have this format. A batch is
`features` [B, L, X], `labels` [B, L] and `where` [B, L], False for padding.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grain
import numpy as np

GRADES = 5
"""Labels go from 0 to 4, as in all sets named above."""

Lists = dict[str, np.ndarray]


def _padded(features: np.ndarray, labels: np.ndarray, items: int) -> Lists:
    """One list with room for `items`; of a longer one, the first are kept."""
    kept = min(items, len(labels))
    room = ((0, items - kept), (0, 0))
    return {
        "features": np.pad(features[:kept], room).astype(np.float32),
        "labels": np.pad(labels[:kept], room[0]).astype(np.float32),
        "where": np.arange(items) < kept,
    }


def load_letor(path: str | Path, features: int, items: int) -> list[Lists]:
    """The lists of a file, in the order of their first lines.

    features: how many there are; items: room in a list, of a longer one the first stay.
    `ValueError` for a file that cannot be read as text, and with its number for a line
    of another form.
    """
    if features < 1 or items < 1:
        raise ValueError(f"features and items are at least 1, not {features}, {items}")
    lists: dict[str, list[tuple[float, np.ndarray]]] = {}
    for number, line in enumerate(_lines(Path(path)), start=1):
        text = line.split("#")[0].split()
        if not text:
            continue
        try:
            query, label, row = _parsed(text, features)
        except ValueError as error:
            raise ValueError(
                f"{path}, line {number}: {error}: {line[:60]!r}"
            ) from error
        lists.setdefault(query, []).append((label, row))
    if not lists:
        raise ValueError(f"{path} holds no list")
    return [
        _padded(np.stack([r for _, r in rows]), np.array([y for y, _ in rows]), items)
        for rows in lists.values()
    ]


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        raise ValueError(f"there is no file {path}") from None
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path} is no text: wanted lines such as `2 qid:10 1:0.5 3:7`, unpacked"
        ) from error


def _parsed(text: list[str], features: int) -> tuple[str, float, np.ndarray]:
    """Query, label and features of a line's words."""
    if len(text) < 2 or not text[1].startswith("qid:") or text[1] == "qid:":
        raise ValueError("wanted `label qid:query 1:value ...`")
    row = np.zeros(features)
    for entry in text[2:]:
        place, colon, value = entry.partition(":")
        if not colon:
            raise ValueError(f"{entry!r} is no `feature:value`")
        if not place.isdecimal() or not 1 <= int(place) <= features:
            raise ValueError(f"feature {place!r} is none of 1 to {features}")
        row[int(place) - 1] = _number(value)
    return text[1], _number(text[0]), row


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = np.nan
    if not np.isfinite(number):
        raise ValueError(f"{text!r} is no finite number")
    return number


@dataclass(frozen=True, slots=True)
class MadeLists:
    """Lists whose labels grade a hidden smooth function of the features, and noise.

    Each list shifts its features, as queries do, so only differences in it tell.
    """

    count: int
    items: int
    features: int
    seed: int

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: Any, /) -> Lists:
        hidden = np.random.default_rng(self.seed)
        into = hidden.normal(size=(self.features, 8)) / self.features**0.5
        out = hidden.normal(size=8)
        rng = np.random.default_rng((self.seed, int(index)))
        length = rng.integers(self.items // 2, self.items + 1)
        x = rng.normal(size=(length, self.features))
        use = np.tanh(2 * x @ into) @ out + 0.1 * rng.normal(size=length)
        worse = np.argsort(np.argsort(use)) / length  # the share of the list below
        labels = np.floor(worse**2 * GRADES)
        shift = rng.normal(size=self.features)
        return _padded(x + 0.5 * shift, labels, self.items)


def batches(
    lists: Sequence[Lists] | MadeLists, batch: int, seed: int
) -> Iterator[Lists]:
    """Endless batches, shuffled for each pass; the same seed gives the same batches."""
    source: Any = grain.MapDataset.source(lists)
    return iter(source.seed(seed).shuffle().repeat().batch(batch).to_iter_dataset())
