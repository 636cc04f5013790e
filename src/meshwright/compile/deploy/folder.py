"""Folders of deployed models: written aside, and put in place when they are complete."""

from __future__ import annotations

import glob
import os
import shutil
import signal
import tempfile
import threading
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

    If the block raises, or the process is terminated, nothing is left, and an older `out`
    stays as it was. What a killed process left is removed by the next one.
    """
    _remove_abandoned(out)
    try:
        prefix = f".{out.name}-{os.getpid()}-"
        aside = Path(tempfile.mkdtemp(prefix=prefix, dir=out.parent))
    except OSError as error:
        raise DeployError(f"cannot write {out}: {error.strerror}") from None
    try:
        with _termination_raises():
            content = aside / "new"
            content.mkdir()
            yield content
            if out.exists():
                out.rename(aside / "old")
            content.rename(out)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _remove_abandoned(out: Path) -> None:
    """Remove temporary folders of processes that no longer run."""
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


@contextmanager
def _termination_raises() -> Generator[None]:
    """SIGTERM raises `SystemExit` within the block, unless the program handles it."""
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def leave(number: int, frame: object) -> None:
        del frame
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def files_of(folder: Path) -> tuple[tuple[str, int], ...]:
    """(path in the folder, bytes) of every file, the largest first."""
    found = [
        (path.relative_to(folder).as_posix(), path.stat().st_size)
        for path in folder.rglob("*")
        if path.is_file()
    ]
    return tuple(sorted(found, key=lambda file: (-file[1], file[0])))
