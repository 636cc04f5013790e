"""Writing and reading files of plans, reports and traces, and folders for them."""

from collections.abc import Iterable, Sequence
from os import PathLike
from os.path import isdir  # unlike Path.is_dir, never raises
from pathlib import Path

from meshwright.errors import MeshwrightError, PlanError
from meshwright.plain import read_text


def output_file(path: str | PathLike[str]) -> Path:
    """The path of a file to write; `PlanError` if its folder does not exist.

    Callers check the path before they do the work whose result the file will hold.
    """
    if not isinstance(path, str | PathLike):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise PlanError(f"path is {path!r}; wanted the path of a file to write")
    target = Path(path)
    if not isdir(target.parent):
        raise PlanError(f"cannot write {target}: there is no folder {target.parent}")
    if isdir(target):
        raise PlanError(f"cannot write {target}: that is a folder")
    return target


def make_folder(path: Path, error: type[MeshwrightError] = PlanError) -> None:
    """Make a folder and those around it, if they are not there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as fault:
        what = f"cannot make the folder {path}: {fault.strerror}"
        raise error(what) from None


def remove_folders(folders: Iterable[Path], names: Sequence[str]) -> None:
    """Remove files of these names from folders, and the folders if they are empty then."""
    for folder in filter(Path.is_dir, folders):
        for name in names:
            (folder / name).unlink(missing_ok=True)
        if not any(folder.iterdir()):
            folder.rmdir()


def read_plan_file(path: str | PathLike[str]) -> str:
    """The text of a saved plan; `PlanError` if the file cannot be read as text."""
    if not isinstance(path, str | PathLike):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise PlanError(f"path is {path!r:.60}; wanted that of a file that save wrote")
    return read_text(Path(path), PlanError, "a plan")


def write_file(target: Path, content: bytes) -> None:
    """Write bytes into a file; `PlanError` if the system refuses."""
    try:
        target.write_bytes(content)
    except OSError as error:
        raise PlanError(f"cannot write {target}: {error.strerror}") from None
    except ValueError as error:  # no possible name of a file
        raise PlanError(f"cannot write {str(target)!r}: {error}") from None
