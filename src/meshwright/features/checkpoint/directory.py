"""The directory of checkpoints, and its folders for old and for damaged checkpoints."""

import os
import re
import shutil
import threading
from collections.abc import Sequence
from os import PathLike
from pathlib import Path

from meshwright.errors import CheckpointError
from meshwright.features.checkpoint.orbax_import import import_orbax

TRASH, DAMAGED = "trash", "damaged"
"""Folders in the directory: for checkpoints to delete, and for damaged ones."""


def set_aside(directory: Path, step: int) -> None:
    """Move a damaged checkpoint to the folder "damaged".

    So its step can be saved again.
    """
    damaged = directory / DAMAGED
    damaged.mkdir(exist_ok=True)
    number = sum(path.name.startswith(f"{step}.") for path in damaged.iterdir())
    os.rename(step_folders(directory)[step], damaged / f"{step}.{number}")


_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]+:/")
"""The beginning of an address such as gs://; `pathlib` makes one slash of two."""

_PREFIXED = re.compile(r".+_(\d+)")
"""The folder of a step that plain Orbax wrote with a prefix, such as checkpoint_10."""


def is_address(path: str) -> bool:
    """Whether a text is an address, of an object store, say, instead of a path."""
    return _ADDRESS.match(path) is not None


NO_ADDRESS = (
    "object stores (gs://, s3://) do not work, since a checkpoint is committed by renaming "
    "its directory, and its writer holds a lock; wanted a path of a file system that all "
    "hosts have mounted. Copy finished checkpoints to the store with its own tool"
)
"""What is said about an address in place of a directory."""


def local_directory(directory: str | PathLike[str]) -> Path:
    """The absolute path of a directory; `CheckpointError` for an address or a file."""
    text = os.fspath(directory)
    if not isinstance(text, str):
        raise CheckpointError(f"the directory is {text!r}; wanted a path, as text")
    if is_address(text):
        raise CheckpointError(f"the directory is {text!r}; {NO_ADDRESS}")
    path = Path(text).absolute()
    if path.exists() and not path.is_dir():
        raise CheckpointError(f"{path} is a file; wanted a directory")
    return path


def step_folders(directory: Path) -> dict[int, Path]:
    """The folders of all committed checkpoints in a directory, by step, in order.

    Orbax writes a checkpoint under another name, and renames it when it is complete.
    """
    if not directory.is_dir():
        return {}
    names = import_orbax().path.step.standard_name_format()
    found = {
        int(match[1]): path
        for path in directory.iterdir()
        if (match := _PREFIXED.fullmatch(path.name))
        and (path / "_CHECKPOINT_METADATA").is_file()
    }
    found |= {each.step: Path(each.path) for each in names.find_all(str(directory))}
    return dict(sorted(found.items()))


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
