"""Files that are replaced as a whole."""

import os
from pathlib import Path

from meshwright.errors import FloorplanError


def write_whole(path: Path, content: bytes) -> None:
    """Replace a file, so that a reader finds the old or the new one, never a part."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        part.write_bytes(content)
        part.replace(path)
    except OSError as fault:
        part.unlink(missing_ok=True)
        raise FloorplanError(f"cannot write {path}: {fault.strerror}") from None
