"""The import of Orbax when it is first needed, since it is an optional dependency."""

from typing import Any

from meshwright.errors import CheckpointError, import_extra


def import_orbax() -> Any:
    """Import `orbax.checkpoint`.

    Raises `CheckpointError` if it is missing, with the extra of Meshwright that
    installs it.
    """
    need = "checkpoints need Orbax"
    return import_extra("orbax.checkpoint", need, "checkpoint", CheckpointError)
