"""Folders of deployed models: written under another name, and renamed when complete."""

from __future__ import annotations

import glob
import os
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path

from meshwright.app.output.termination import termination_raises
from meshwright.errors import DeployError

ABOUT_FILE = "model.json"
"""Name of the JSON file with names, shapes and dtypes of inputs and outputs.

A folder with this file is taken for one that a deployment wrote.
"""


def checked_folder(out: str | PathLike[str]) -> Path:
    """The path of a folder to write; `DeployError` if other files are there.

    A folder that is empty, or that a deployment wrote, may be replaced.
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
    """Give a temporary folder, which becomes `out` at the end of the block.

    If the block raises, or the process is terminated, the temporary folder is removed,
    and a folder that was at `out` stays as it was. If a process is killed, the next
    call for the same `out` removes the folder that is left.
    """
    _remove_abandoned(out)
    try:
        prefix = f".{out.name}-{os.getpid()}-"
        aside = Path(tempfile.mkdtemp(prefix=prefix, dir=out.parent))
    except OSError as error:
        raise DeployError(f"cannot write {out}: {error.strerror}") from None
    try:
        with termination_raises():
            content = aside / "new"
            content.mkdir()
            yield content
            if out.exists():
                out.rename(aside / "old")
            content.rename(out)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _remove_abandoned(out: Path) -> None:
    """Remove temporary folders of processes that have ended."""
    for folder in out.parent.glob(f".{glob.escape(out.name)}-*-*"):
        pid = folder.name.rsplit("-", 2)[1]
        if pid.isdigit() and not _is_running(int(pid)):
            shutil.rmtree(folder, ignore_errors=True)


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it belongs to another user
        return True
    return True


def files_of(folder: Path) -> tuple[tuple[str, int], ...]:
    """(path in the folder, bytes) of every file, the largest first."""
    found = [
        (path.relative_to(folder).as_posix(), path.stat().st_size)
        for path in folder.rglob("*")
        if path.is_file()
    ]
    return tuple(sorted(found, key=lambda file: (-file[1], file[0])))
