"""Writing and reading the files of plans, reports and traces, with checked paths."""

from os import PathLike
from os.path import isdir  # unlike Path.is_dir, never raises
from pathlib import Path

from meshwright.errors import PlanError
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
