"""Files of arrays by name, and trees of parameters within them."""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from meshwright.errors import LearnedError

Arrays = Mapping[str, NDArray[Any]]


def save_arrays(path: Path, arrays: Arrays) -> None:
    """Write arrays to an npz file; an interruption leaves no partial file."""
    partial = path.with_name(path.name + ".partial")
    with partial.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)
    os.replace(partial, path)


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of an npz file, by name."""
    faults = (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error)
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            return {key: archive[key] for key in archive.files}
    except (*faults, AttributeError) as fault:  # the last for a bare npy array
        raise LearnedError(
            f"{path} is no readable npz file ({fault}): the file is missing, corrupt or of"
            " another kind; fetch or write it again"
        ) from fault


def numbered_leaves(prefix: str, tree: Any) -> dict[str, NDArray[Any]]:
    """The leaves of a tree by name: the prefix and their number."""
    leaves = jax.tree.leaves(tree)
    return {f"{prefix}{i}": np.asarray(leaf) for i, leaf in enumerate(leaves)}


def leaves_of(arrays: Arrays, prefix: str) -> tuple[NDArray[Any], ...]:
    """The leaves that `numbered_leaves` named, in order."""
    count = sum(key.startswith(prefix) for key in arrays)
    return tuple(arrays[f"{prefix}{i}"] for i in range(count))


def restored_tree(form: Any, arrays: Arrays, prefix: str, path: Path) -> Any:
    """The tree that `numbered_leaves` named, in the structure and shapes of `form`.

    path: the file of the arrays, for the error if it holds another network's.
    """
    wanted, structure = jax.tree.flatten(form)
    leaves = leaves_of(arrays, prefix)
    if [leaf.shape for leaf in leaves] != [np.shape(leaf) for leaf in wanted]:
        raise LearnedError(f"{path} has parameters of another network: train again")
    return jax.tree.unflatten(structure, leaves)
