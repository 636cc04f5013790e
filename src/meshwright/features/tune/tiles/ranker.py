"""The ranker: small neural networks that predict which tilings of a kernel are fast.

`benchmarks/train/train_tile_ranker.py` trains it on measured kernels. It runs in NumPy, so
that tuning needs no machine learning framework.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from meshwright.errors import LearnedError
from meshwright.learn.arrays import read_arrays

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Ranker:
    """An ensemble of networks of two hidden layers that predict how long tilings run.

    In shapes, c is the number of tilings and f that of features.

    mean, scale: mean and 1 / standard deviation of each feature [f].
    layers: weights [members, in, out] and biases [members, 1, out] of each layer, the
        input's first.
    """

    mean: Floats
    scale: Floats
    layers: tuple[tuple[Floats, Floats], ...]

    def standardised(self, rows: Floats) -> Floats:
        """Features [c, f] in standard deviations from the training mean, at most 4."""
        return np.clip((rows - self.mean) * self.scale, -4, 4)

    def predict(self, rows: Floats) -> Floats:
        """Predicted logarithm of the time of each of c tilings of one kernel, [c].

        rows: the tilings' features [c, f]. Only differences between tilings of a kernel
            count, since a constant that depends on the kernel is left out.
        """
        hidden = self.standardised(rows)[None]
        for number, (weights, bias) in enumerate(self.layers):
            hidden = hidden @ weights + bias
            if number + 1 < len(self.layers):
                hidden = np.maximum(hidden, 0.1 * hidden)
        return hidden[..., 0].mean(axis=0)

    @classmethod
    def load(cls, path: Path, features: int) -> Ranker:
        """Read a ranker from a file.

        features: number of features that it must take; otherwise `LearnedError` is
            raised.
        """
        arrays = read_arrays(path)
        count = sum(name.startswith("weights") for name in arrays)
        names = {"mean", "scale", *(f"bias{i}" for i in range(count))}
        if not count or names - set(arrays) or arrays["mean"].shape != (features,):
            raise LearnedError(
                f"{path} is no ranker of {features} features: train it again with "
                "benchmarks/train/train_tile_ranker.py"
            )
        floats = {name: array.astype(np.float64) for name, array in arrays.items()}
        layers = ((floats[f"weights{i}"], floats[f"bias{i}"]) for i in range(count))
        return cls(floats["mean"], floats["scale"], tuple(layers))

    def save(self, path: Path) -> None:
        """Write the ranker to an npz file, its weights in half precision."""
        arrays: dict[str, NDArray[np.floating]] = {
            "mean": self.mean.astype(np.float32),
            "scale": self.scale.astype(np.float32),
        }
        for number, (weights, bias) in enumerate(self.layers):
            arrays[f"weights{number}"] = weights.astype(np.float16)
            arrays[f"bias{number}"] = bias.astype(np.float16)
        np.savez_compressed(path, allow_pickle=False, **arrays)


@cache
def shipped_ranker(features: int) -> Ranker:
    """The ranker that is shipped with the package, for this number of features."""
    folder = files("meshwright.features.tune.tiles")
    with as_file(folder.joinpath("ranker.npz")) as path:
        return Ranker.load(path, features)
