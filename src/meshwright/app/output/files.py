"""Files of plans, reports and traces: what is written into them, and read back."""

from os import PathLike
from os.path import isdir  # which does not raise, whatever the name
from pathlib import Path

from meshwright.errors import PlanError


def output_file(path: str | PathLike[str]) -> Path:
    """The path of a file to write; `PlanError` if it cannot be written.

    Callers check the path first, before the work that the file will hold.
    """
    if not isinstance(path, str | PathLike):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise PlanError(f"path is {path!r}; wanted the path of a file to write")
    target = Path(path)
    if not isdir(target.parent):
        raise PlanError(f"cannot write {target}: there is no folder {target.parent}")
    if isdir(target):
        raise PlanError(f"cannot write {target}: that is a folder")
    return target


def read_plan_file(source: Path) -> str:
    """The text of a saved plan; `PlanError` if the file cannot be read as text."""
    try:
        return source.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PlanError(f"cannot read a plan from {source}: {error}") from None


def write_file(target: Path, content: bytes) -> None:
    """Write the content of a file; `PlanError` if the system refuses."""
    try:
        target.write_bytes(content)
    except OSError as error:
        raise PlanError(f"cannot write {target}: {error.strerror}") from None
