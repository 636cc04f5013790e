"""The log of a cluster: what happened, when and to whom, for people to read."""

import time
from collections import deque
from dataclasses import dataclass, field

MOST_EVENTS = 10_000
"""Number of events that a log keeps; older ones are dropped."""


@dataclass(frozen=True, slots=True)
class Event:
    """One entry of a cluster's log, such as the loss of a gang.

    number: 1 for the first event of the cluster. time_s: seconds since 1970.
    kind: one word, such as "lost". text: a sentence.
    """

    number: int
    time_s: float
    kind: str
    text: str

    def __str__(self) -> str:
        clock = time.strftime("%H:%M:%S", time.localtime(self.time_s))
        return f"{clock}  {self.kind:10} {self.text}"


@dataclass(slots=True)
class EventLog:
    """The last `MOST_EVENTS` events of a cluster, in order."""

    events: deque[Event] = field(default_factory=lambda: deque(maxlen=MOST_EVENTS))
    _last: int = 0

    def add(self, kind: str, text: str) -> None:
        """Record an event that happens now."""
        self._last += 1
        self.events.append(Event(self._last, time.time(), kind, text))

    def after(self, number: int) -> list[Event]:
        """The events that are kept and have a greater number."""
        return [event for event in self.events if event.number > number]
