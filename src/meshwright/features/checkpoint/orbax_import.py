"""The import of Orbax when it is first needed, since it is an optional dependency."""

import logging
from pathlib import Path
from typing import Any

from meshwright.errors import CheckpointError, import_extra

_LOGGER = logging.getLogger(__name__)


def import_orbax() -> Any:
    """Import `orbax.checkpoint`, whose tracebacks then stay out of the terminal.

    Raises `CheckpointError` if it is missing, with the extra of Meshwright that
    installs it.
    """
    need = "checkpoints need Orbax"
    orbax = import_extra("orbax.checkpoint", need, "checkpoint", CheckpointError)
    absl = logging.getLogger("absl")
    if _hide_traceback not in absl.filters:
        absl.addFilter(_hide_traceback)
    return orbax


def as_epath(path: Path) -> Any:
    """A path as Orbax's own readers and writers want it."""
    from etils import epath  # comes with Orbax

    return epath.Path(path)


def _hide_traceback(record: logging.LogRecord) -> bool:
    """Whether a record of the absl logger is no traceback of Orbax.

    Orbax's threads log each exception that they hand to their caller, which raises it. So
    the log is repetition; it goes to the logger of this module, at the level DEBUG.
    """
    if (
        not record.exc_info
        or Path("orbax/checkpoint").as_posix() not in record.pathname
    ):
        return True
    _LOGGER.debug("%s", record.getMessage(), exc_info=record.exc_info)
    return False
