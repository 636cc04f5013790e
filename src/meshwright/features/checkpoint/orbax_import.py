"""The import of Orbax when it is first needed, since it is an optional dependency."""

from importlib import import_module
from typing import Any

from meshwright.errors import CheckpointError


def import_orbax() -> Any:
    """Import `orbax.checkpoint`.

    Raises `CheckpointError` if it is missing, with the extra of Meshwright that
    installs it.
    """
    try:
        return import_module("orbax.checkpoint")
    except ImportError as missing:
        raise CheckpointError(
            f"checkpoints need Orbax, which cannot be imported ({missing}); "
            "pip install 'meshwright[checkpoint]'"
        ) from missing
