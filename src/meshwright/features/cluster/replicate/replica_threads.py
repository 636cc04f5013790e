"""The threads of a replicated run: shared state, common stop, and error reports."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import jax

from meshwright.app.output.notices import warn
from meshwright.errors import ReplicaError
from meshwright.features.cluster.remote_array import RemoteArray

_PATIENCE_S = 10.0
"""Seconds that a stopped run waits for each of its threads."""


class Crew:
    """The background threads of a run, and the newest state, which they read.

    changed: condition variable, notified when the version, an error or `is_stopped`
        changes.
    version: the number of updates that `state` has had.
    """

    def __init__(self, state: Any) -> None:
        self.changed = threading.Condition()
        self.is_stopped = False
        self.version, self.state = 0, state
        self._errors: list[ReplicaError] = []
        self._threads: list[threading.Thread] = []

    def publish(self, version: int, state: Any) -> None:
        """Set the newest state and its version."""
        with self.changed:
            self.version, self.state = version, state
            self.changed.notify_all()

    def start(self, name: str, function: Callable[[], None]) -> None:
        """Run a function in a new thread; an error message of the thread has this name."""
        thread = threading.Thread(
            target=self._run, args=(name, function), name=name, daemon=True
        )
        self._threads.append(thread)
        thread.start()

    def _run(self, name: str, function: Callable[[], None]) -> None:
        try:
            function()
        except Exception as error:  # noqa: BLE001  raised again by `check`
            found = _name_thread(name, error)
            with self.changed:
                self._errors.append(found)
                self.changed.notify_all()

    def check(self) -> None:
        """Raise the first error that a thread raised, if there is one."""
        if self._errors:
            raise self._errors[0]

    def wait_until(self, is_due: Callable[[], bool]) -> None:
        """Wait in the caller's thread until `is_due()`.

        If a thread raises an error, it is raised here.
        """
        with self.changed:
            self.changed.wait_for(lambda: self._errors or is_due())
        self.check()

    def wait_or_stop(self, is_due: Callable[[], bool]) -> bool:
        """Wait in a background thread until `is_due()` or the run stops.

        Returns whether the run goes on.
        """
        with self.changed:
            self.changed.wait_for(lambda: self.is_stopped or is_due())
            return not self.is_stopped

    def stop(self) -> None:
        """Stop all threads; a warning names those that do not end."""
        with self.changed:
            self.is_stopped = True
            self.changed.notify_all()
        for thread in self._threads:
            thread.join(_PATIENCE_S)
        late = [thread.name for thread in self._threads if thread.is_alive()]
        if late:
            warn(
                f"the run has ended, but not {', '.join(late)}; return from actors when "
                "their states end, and from input_fn when context.is_stopped()"
            )


def _name_thread(name: str, error: Exception) -> ReplicaError:
    if isinstance(error, ReplicaError):
        return error
    found = ReplicaError(f"{name} raised {type(error).__name__}: {error}")
    found.__cause__ = error
    return found


class Learner:
    """The interface through which an actor reads the states of a run.

    An actor is a function in a thread that acts with the newest state while replicas learn.
    """

    def __init__(self, crew: Crew) -> None:
        self._crew = crew

    def is_stopped(self) -> bool:
        """Whether the run has ended; an actor that waits for something must poll this."""
        return self._crew.is_stopped

    def states(self, every: int = 0) -> Iterator[tuple[int, Any]]:
        """Pairs of the newest version and state, until the run ends.

        every: least number of updates between two states; 0 repeats a state that is not
            new.
        """
        version, crew = -every, self._crew
        while crew.wait_or_stop(lambda: crew.version >= version + every):  # noqa: B023
            with crew.changed:
                version, state = crew.version, crew.state
            yield version, fetch(state)


def fetch(tree: Any) -> Any:
    """The pytree with local arrays in place of handles to arrays on a cluster."""
    return jax.tree.map(lambda x: x.result() if isinstance(x, RemoteArray) else x, tree)
