"""The directory of checkpoints: its path, what is deleted, and what is damaged."""

import os
import shutil
from os import PathLike
from pathlib import Path

from meshwright.errors import CheckpointError

TRASH, DAMAGED = "trash", "damaged"
"""Folders for checkpoints to delete, and for damaged ones, inside of the directory."""


def set_aside(directory: Path, step: int) -> None:
    """Move a damaged checkpoint away, so that its step can be saved again."""
    damaged = directory / DAMAGED
    damaged.mkdir(exist_ok=True)
    number = sum(path.name.startswith(f"{step}.") for path in damaged.iterdir())
    os.rename(directory / str(step), damaged / f"{step}.{number}")


def local_directory(directory: str | PathLike[str]) -> Path:
    """The absolute path of a directory; `CheckpointError` for an address or a file."""
    text = os.fspath(directory)
    if not isinstance(text, str) or "://" in text:
        raise CheckpointError(
            f"the directory is {text!r}; wanted a path of a file system, mounted on "
            "every host"
        )
    path = Path(text).absolute()
    if path.exists() and not path.is_dir():
        raise CheckpointError(f"{path} is a file; wanted a directory")
    return path


def empty_trash(directory: Path) -> None:
    """Delete the old checkpoints, which Orbax has only moved."""
    shutil.rmtree(directory / TRASH, ignore_errors=True)
