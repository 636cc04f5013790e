"""Asynchronous replicas: each runs in a thread at its own speed.

A parameter server keeps their common state.
"""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from meshwright.features.cluster.replicate.exchange import Exchange
from meshwright.features.cluster.replicate.executors import Executor, bring_home
from meshwright.features.cluster.replicate.lockstep import StepFn
from meshwright.features.cluster.replicate.programs import Programs, trace_programs
from meshwright.features.cluster.replicate.replica_threads import Crew
from meshwright.features.cluster.replicate.server import ParameterServer, Update


@dataclass(eq=False)
class AsynchronousRun:
    """One run of asynchronous replicas, with their parameter server.

    The lock of the crew (the run's threads) guards the server.
    step: a function that makes one replica's step from an `Exchange`, its way to average
        values over replicas.
    executors: for each replica, the executor that runs its programs on a device.
    staleness: most updates that a state may have had since a gradient was computed from it.
    """

    step: Callable[[Exchange], StepFn]
    executors: list[Executor]
    crew: Crew
    staleness: int
    _programs: list[Programs] = field(default_factory=list[Programs])
    _tracing: threading.Lock = field(default_factory=threading.Lock)
    _num_ended: int = 0

    def __post_init__(self) -> None:
        state = bring_home(self.crew.state)
        replicas = len(self.executors)
        self._server = ParameterServer(state, self._apply, replicas, self.staleness)

    def updates(self, inputs: list[Iterator[Any]], steps: int) -> Iterator[Update]:
        """The first `steps` updates of the state; fewer if the batches end before."""
        for replica, batches in enumerate(inputs):
            run = partial(self._replicate, replica, batches)
            self.crew.start(f"replica {replica}", run)
        for _ in range(steps):
            self.crew.wait_until(lambda: bool(self._server.updates) or self._is_over())
            with self.crew.changed:
                if not self._server.updates:
                    return
                update = self._server.updates.popleft()
                self.crew.changed.notify_all()
            yield update

    def _is_over(self) -> bool:
        """Whether too few replicas still have batches, so that no update can follow.

        With staleness 0 an update needs all replicas, with more it needs one.
        """
        return self._num_ended == len(self.executors) or (
            self.staleness == 0 and self._num_ended > 0
        )

    def _replicate(self, replica: int, batches: Iterator[Any]) -> None:
        """Compute and send gradients of each batch, until the batches or the run end."""
        compute: Callable[[Any, Any], Any] | None = None
        for batch in batches:
            if compute is None:
                compute = self.executors[replica](self._traced(batch).contribute)
            if not self._contribute(replica, batch, compute):
                return
        self.crew.wait_or_stop(lambda: not self._server.is_waiting(replica))
        with self.crew.changed:
            self._num_ended += 1
            self.crew.changed.notify_all()

    def _contribute(
        self, replica: int, batch: Any, compute: Callable[[Any, Any], Any]
    ) -> bool:
        """Compute and send the gradients of one batch; returns whether the run goes on.

        If the gradients are too stale, they are computed again from a newer state.
        """
        server = self._server

        def is_due() -> bool:
            is_seen = len(server.updates) < len(self.executors)
            return is_seen and not server.is_waiting(replica)

        while self.crew.wait_or_stop(is_due):
            with self.crew.changed:
                version, state = server.version, server.state
            values, results = compute(state, batch)
            with self.crew.changed:
                if self.crew.is_stopped:
                    return False
                if server.offer(replica, version, values, results):
                    self.crew.publish(server.version, server.state)
                    return True
        return False

    def _traced(self, batch: Any) -> Programs:
        """The traced programs of the step.

        The replica that has the first batch traces them; all replicas use them.
        """
        with self._tracing:
            if not self._programs:
                programs = trace_programs(self.step, self._server.state, batch)
                self._programs.append(programs)
            return self._programs[0]

    def _apply(self, state: Any, many: Any) -> Any:
        return self._programs[0].apply(state, bring_home(many))
