"""A progress line on standard error."""

from collections.abc import Callable, Generator
from contextlib import contextmanager

from rich.console import Console


@contextmanager
def show_progress(what: str) -> Generator[Callable[[str], None]]:
    """Show a line on stderr, such as `what ...`, while the body of the `with` runs.

    The body gets a function that shows a text after `what`. Nothing is shown if stderr is
    not a terminal.
    """
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda text: None
        return
    with console.status(f"{what} ...") as status:
        yield lambda text: status.update(f"{what}: {text}")
