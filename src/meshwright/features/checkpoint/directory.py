"""The directory of checkpoints, and its folders for old and for damaged checkpoints."""

import os
import shutil
import threading
from collections.abc import Sequence
from os import PathLike
from pathlib import Path

from meshwright.errors import CheckpointError

TRASH, DAMAGED = "trash", "damaged"
"""Folders in the directory: for checkpoints to delete, and for damaged ones."""


def set_aside(directory: Path, step: int) -> None:
    """Move a damaged checkpoint to the folder "damaged".

    So its step can be saved again.
    """
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
    """The folder into which Orbax moves old checkpoints, to be deleted here."""

    def __init__(self, directory: Path) -> None:
        self._folder = directory / TRASH
        self._thread: threading.Thread | None = None

    def begin_to_empty(self) -> None:
        """Start a thread that deletes the folder's present content, not the folder.

        Orbax may move the next checkpoint into the folder at any time. If an earlier
        thread still deletes, nothing is started: newer checkpoints are deleted by the
        next call.
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
        """Delete the folder and wait for it; no save may run meanwhile."""
        if self._thread is not None:
            self._thread.join()
        _delete([self._folder])


def _delete(folders: Sequence[Path]) -> None:
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
