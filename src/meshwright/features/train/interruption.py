"""Ctrl-C and SIGTERM end a training run after its current step instead of at once."""

import signal
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass(slots=True)
class Interruption:
    """The signal that asked the training run to end; `None` if there was no signal."""

    received: signal.Signals | None = None

    @property
    def exit_status(self) -> int:
        """The process's exit status: 128 plus the signal's number, or 0 for none."""
        return 0 if self.received is None else 128 + self.received


@contextmanager
def catch_interruption() -> Generator[Interruption]:
    """While the body runs, record the first Ctrl-C or SIGTERM; the second ends the process.

    The body gets the `Interruption` that records the signal.
    """
    found = Interruption()
    before = {each: signal.getsignal(each) for each in _SIGNALS}

    def record(number: int, frame: FrameType | None) -> None:
        del frame
        found.received = signal.Signals(number)
        for each, handler in before.items():
            signal.signal(each, handler)

    for each in _SIGNALS:
        signal.signal(each, record)
    try:
        yield found
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
