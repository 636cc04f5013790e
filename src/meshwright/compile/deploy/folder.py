"""Folders of deployed models: written aside, and put in place when they are complete."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path

from meshwright.errors import DeployError

ABOUT_FILE = "model.json"
"""Names, shapes and dtypes of inputs and outputs; only deployed models have this file."""


def checked_folder(out: str | PathLike[str]) -> Path:
    """The path of a folder to write; `DeployError` if something else is there.

    A folder that a deployment wrote before, or an empty one, is replaced.
    """
    folder = Path(out)
    parent = folder.parent
    if not parent.is_dir():
        raise DeployError(f"cannot write {folder}: there is no folder {parent}")
    if folder.is_file():
        raise DeployError(f"cannot write the folder {folder}: that is a file")
    if folder.is_dir() and any(folder.iterdir()) and not is_deployed(folder):
        raise DeployError(
            f"cannot write {folder}: it holds files that no deployment wrote; name a new "
            "folder"
        )
    return folder


def is_deployed(folder: Path) -> bool:
    """Whether a folder holds a deployed model."""
    return (folder / ABOUT_FILE).is_file()


@contextmanager
def staged(out: Path) -> Generator[Path]:
    """A temporary folder that becomes `out` at the end of the block.

    If the block raises, nothing is left, and an older `out` stays as it was.
    """
    try:
        aside = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    except OSError as error:
        raise DeployError(f"cannot write {out}: {error.strerror}") from None
    try:
        content = aside / "new"
        content.mkdir()
        yield content
        if out.exists():
            out.rename(aside / "old")
        content.rename(out)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def files_of(folder: Path) -> tuple[tuple[str, int], ...]:
    """(path in the folder, bytes) of every file, the largest first."""
    found = [
        (path.relative_to(folder).as_posix(), path.stat().st_size)
        for path in folder.rglob("*")
        if path.is_file()
    ]
    return tuple(sorted(found, key=lambda file: (-file[1], file[0])))
