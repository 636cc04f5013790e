"""SIGTERM as an exception, so that what a block has begun is undone."""

import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def termination_raises() -> Generator[None]:
    """Let SIGTERM raise `SystemExit` in the block, if it has no handler yet."""
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def leave(number: int, frame: object) -> None:
        del frame
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
