"""Ctrl-C and SIGTERM, which end a run after its current step instead of at once."""

import signal
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass(slots=True)
class Interruption:
    """The signal that has asked the run to end; `None` as long as none has."""

    received: signal.Signals | None = None

    @property
    def exit_status(self) -> int:
        """128 and the number of the signal, as shells have it; 0 without one."""
        return 0 if self.received is None else 128 + self.received


@contextmanager
def catch_interruption() -> Generator[Interruption]:
    """A body in which the first signal is only recorded; the second one has its effect."""
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
