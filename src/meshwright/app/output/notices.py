"""Warnings that point at the line of the user's code that called Meshwright."""

import warnings
from collections.abc import Iterable
from pathlib import Path

from meshwright.errors import MeshwrightWarning

_PACKAGE = str(Path(__file__).parents[2])


def warn(message: str) -> None:
    """Issue a `MeshwrightWarning` at the user's line."""
    warnings.warn(
        message, MeshwrightWarning, stacklevel=2, skip_file_prefixes=(_PACKAGE,)
    )


def warn_each(messages: Iterable[str], told: set[str]) -> None:
    """Issue a `MeshwrightWarning` for each message that is not in `told`, and add it."""
    for message in messages:
        if message not in told:
            told.add(message)
            warn(message)
