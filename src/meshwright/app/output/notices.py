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


def warn_each(messages: Iterable[str], past: set[str] | None = None) -> None:
    """Issue a `MeshwrightWarning` for each message that is not in `past`, and add it there.

    past: the messages of earlier warnings; `None` if there were none.
    """
    past = set[str]() if past is None else past
    for message in messages:
        if message not in past:
            past.add(message)
            warn(message)
