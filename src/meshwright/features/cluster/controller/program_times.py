"""Measured seconds of programs on an island, from which requests are scheduled."""

from meshwright.features.cluster.controller.requests import QueuedRequest
from meshwright.features.cluster.wire.messages import Call


class ProgramTimes:
    """Seconds of the last runs of programs; later runs count more."""

    def __init__(self) -> None:
        self._measured_s: dict[tuple[str, int], float] = {}

    def expect(self, entry: QueuedRequest) -> float:
        """The seconds that a request is expected to take, which the request records."""
        if isinstance(entry.request, Call):
            key = entry.session, entry.request.program
            entry.expected_s = self._measured_s.get(key, 1e-3)
        return entry.expected_s

    def add(self, entry: QueuedRequest) -> None:
        """Record how long a completed request took."""
        if isinstance(entry.request, Call):
            key = entry.session, entry.request.program
            known = self._measured_s.get(key, entry.took_s)
            self._measured_s[key] = 0.5 * known + 0.5 * entry.took_s

    def forget(self, session: str) -> None:
        """Forget how long the programs of a session took."""
        self._measured_s = {
            k: v for k, v in self._measured_s.items() if k[0] != session
        }
