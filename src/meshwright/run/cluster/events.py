"""The log of a cluster: what happened, when and to whom, for people to read."""

import time
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Event:
    """One event.

    time_s: seconds since 1970. kind: one word, such as "lost". text: a sentence.
    """

    time_s: float
    kind: str
    text: str

    def __str__(self) -> str:
        clock = time.strftime("%H:%M:%S", time.localtime(self.time_s))
        return f"{clock}  {self.kind:10} {self.text}"


@dataclass(slots=True)
class EventLog:
    """The events of a cluster, in order."""

    events: list[Event] = field(default_factory=list)

    def add(self, kind: str, text: str) -> None:
        """Record an event that happens now."""
        self.events.append(Event(time.time(), kind, text))
