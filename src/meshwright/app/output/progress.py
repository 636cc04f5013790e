"""Progress on standard error."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from rich.console import Console


@contextmanager
def show_progress(what: str) -> Generator[None]:
    """A line on stderr while the body runs; no line if stderr is not a terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    with console.status(f"{what} ..."):
        yield
