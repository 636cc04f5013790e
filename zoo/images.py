"""Images as batches: folders of the user, one per class, or small pictures made here.

Both ways give {"image": [B, S, S, 3] float32 in [-1, 1], "label": [B] int32}.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import grain
import numpy as np
from PIL import Image, UnidentifiedImageError

SUFFIXES = (".jpeg", ".jpg", ".png")

SHAPES = ("disc", "square", "ring", "cross")

COLOURS = np.array(
    [[1, -0.6, -0.6], [-0.6, 1, -0.6], [-0.6, -0.4, 1], [1, 0.9, -0.7]], np.float32
)

Batch = dict[str, np.ndarray]


def batches(folder: str | Path, batch: int, size: int, seed: int) -> Iterator[Batch]:
    """Batches without end from `folder/class/picture.png`, the same for the same seed.

    Each picture is cut to its middle square and resized; classes are numbered in the
    order of their names. `ValueError` for a folder without pictures, and for one that
    cannot be read, with its name.
    """
    found = list_pictures(folder)
    dataset = (
        grain.MapDataset.source(found)
        .shuffle(seed=seed)
        .repeat()
        .map(
            lambda entry: {**read_picture(entry[0], size), "label": np.int32(entry[1])}
        )
        .batch(batch)
    )
    yield from dataset.to_iter_dataset()


def list_pictures(folder: str | Path) -> list[tuple[Path, int]]:
    """(path, number of its class) of every picture in the folders of a folder."""
    root = Path(folder)
    if not root.is_dir():
        raise ValueError(f"there is no folder {root}")
    classes = sorted(path for path in root.iterdir() if path.is_dir())
    found = [
        (path, number)
        for number, place in enumerate(classes)
        for path in sorted(place.iterdir())
        if path.suffix.lower() in SUFFIXES
    ]
    if not found:
        raise ValueError(
            f"{root} holds no pictures; wanted {root}/<class>/<picture> ending in "
            f"{', '.join(SUFFIXES)}"
        )
    return found


def read_picture(path: Path, size: int) -> Batch:
    """The middle square of a picture file, `size` pixels wide."""
    try:
        with Image.open(path) as opened:
            picture = opened.convert("RGB")
    except (OSError, UnidentifiedImageError) as error:
        raise ValueError(f"{path} is no picture that can be read: {error}") from error
    side = min(picture.size)
    left, top = ((extent - side) // 2 for extent in picture.size)
    square = picture.crop((left, top, left + side, top + side))
    pixels = np.asarray(square.resize((size, size), Image.Resampling.BILINEAR))
    return {"image": pixels.astype(np.float32) / 127.5 - 1}


def made_batches(batch: int, size: int, classes: int, seed: int) -> Iterator[Batch]:
    """Batches without end of coloured shapes, whose class is shape and colour.

    At most len(SHAPES) * len(COLOURS) classes; place, extent and background vary.
    """
    most = len(SHAPES) * len(COLOURS)
    if not 1 <= classes <= most:
        raise ValueError(f"made pictures have 1 to {most} classes; got {classes}")
    rng = np.random.default_rng(seed)
    while True:
        label = rng.integers(0, classes, batch).astype(np.int32)
        yield {"image": draw(label, size, rng), "label": label}


@dataclass(frozen=True, slots=True)
class _Grid:
    """Distances of every pixel from the middle of each shape, in its radii: [B, S, S]."""

    right: np.ndarray
    down: np.ndarray


def draw(label: np.ndarray, size: int, rng: np.random.Generator) -> np.ndarray:
    """Pictures [B, size, size, 3] of the classes `label` [B]."""
    count = len(label)
    radius = rng.uniform(0.2, 0.35, (count, 1, 1))
    middle = rng.uniform(0.35, 0.65, (2, count, 1, 1))
    pixel = (np.arange(size) + 0.5) / size
    grid = _Grid(
        (pixel[None, None, :] - middle[0]) / radius,
        (pixel[None, :, None] - middle[1]) / radius,
    )
    masks = np.stack([_disc(grid), _square(grid), _ring(grid), _cross(grid)])
    mask = masks[label % len(SHAPES), np.arange(count)][..., None]
    shade = rng.uniform(-1, -0.5, (count, 1, 1, 1))
    colour = COLOURS[label // len(SHAPES)][:, None, None, :]
    return np.where(mask, colour, shade).astype(np.float32)


def _disc(grid: _Grid) -> np.ndarray:
    return grid.right**2 + grid.down**2 < 1


def _square(grid: _Grid) -> np.ndarray:
    return np.maximum(abs(grid.right), abs(grid.down)) < 0.85


def _ring(grid: _Grid) -> np.ndarray:
    return _disc(grid) & (grid.right**2 + grid.down**2 > 0.35)


def _cross(grid: _Grid) -> np.ndarray:
    narrow = np.minimum(abs(grid.right), abs(grid.down)) < 0.3
    return narrow & (np.maximum(abs(grid.right), abs(grid.down)) < 1)
