"""The directory of checkpoints: its path, what is deleted, and what is damaged."""

import os
import shutil
import threading
from collections.abc import Sequence
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


class Trash:
    """The folder of old checkpoints, into which Orbax only moves them."""

    def __init__(self, directory: Path) -> None:
        self._folder = directory / TRASH
        self._thread: threading.Thread | None = None

    def begin_to_empty(self) -> None:
        """Delete what is in the folder now, in a thread; the folder itself stays.

        Orbax may move the next checkpoint into it at any time. A thread that still deletes
        is not joined: what has come since is deleted the next time.
        """
        if self._thread is not None and self._thread.is_alive():
            return
        old = list(self._folder.iterdir()) if self._folder.is_dir() else []
        if old:
            self._thread = threading.Thread(
                target=_delete, args=(old,), name="old checkpoints", daemon=True
            )
            self._thread.start()

    def empty(self) -> None:
        """Delete the folder; nobody may save meanwhile."""
        if self._thread is not None:
            self._thread.join()
        _delete([self._folder])


def _delete(folders: Sequence[Path]) -> None:
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
