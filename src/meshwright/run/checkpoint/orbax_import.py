"""The late import of Orbax, which comes with an extra."""

from importlib import import_module
from typing import Any

from meshwright.errors import CheckpointError


def import_orbax() -> Any:
    """The module `orbax.checkpoint`; `CheckpointError` with the extra if it is missing."""
    try:
        return import_module("orbax.checkpoint")
    except ImportError as missing:
        raise CheckpointError(
            f"checkpoints need Orbax, which cannot be imported ({missing}); "
            "pip install 'meshwright[checkpoint]'"
        ) from missing
