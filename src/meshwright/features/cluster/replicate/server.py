"""The parameter server of asynchronous replicas, which keeps and updates the state.

The server counts the updates of the state as its version. A replica reads state and
version, computes gradients and offers them as a contribution. With a staleness of 0, an
update takes the mean of one contribution per replica, as synchronous replicas do. With a
larger staleness, each contribution is an update of its own. If the state has had more than
`staleness` updates since the replica read it, the contribution is dropped and the replica
computes it again. (Bounded staleness: Q. Ho et al., "More Effective Distributed ML via a
Stale Synchronous Parallel Parameter Server", NIPS 2013, who let fast workers wait instead.)

The server has no threads and no lock; its caller holds a lock during each call.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from meshwright.features.cluster.replicate.inputs import stack


@dataclass(frozen=True, slots=True, eq=False)
class Update:
    """One update of the state.

    version: number of updates so far, with this one. state: the state after this update.
    replicas: indices of the replicas whose values it used.
    results: the step's results of these replicas, stacked along a new dim 0.
    num_dropped: number of contributions dropped so far because they were too stale.
    """

    version: int
    state: Any
    results: Any
    replicas: tuple[int, ...]
    num_dropped: int = 0


Apply = Callable[[Any, Sequence[Any]], Any]
"""A function from a state and the values of one or more replicas to the next state."""


class ParameterServer:
    """The state of a run, with the contributions of replicas that are not applied yet.

    updates: the updates that the run has not returned to its caller yet.
    """

    def __init__(self, state: Any, apply: Apply, replicas: int, staleness: int) -> None:
        self.state, self.version = state, 0
        self.updates: deque[Update] = deque()
        self.num_dropped = 0
        self._apply = apply
        self._replicas, self._staleness = replicas, staleness
        self._waiting: dict[int, tuple[Any, Any]] = {}  # values and results

    def offer(self, replica: int, version: int, values: Any, results: Any) -> bool:
        """Take a replica's contribution; returns `False` if it is dropped as too stale.

        version: version of the state from which the values were computed.
        values: gradients and other values of the replica, which the server averages.
        results: the step's results for the user, besides the state.
        """
        if self.version - version > self._staleness:
            self.num_dropped += 1
            return False
        self._waiting[replica] = values, results
        if self._staleness or len(self._waiting) == self._replicas:
            self._update()
        return True

    def is_waiting(self, replica: int) -> bool:
        """Whether this replica's contribution waits for those of other replicas."""
        return replica in self._waiting

    def _update(self) -> None:
        """Update the state with all waiting contributions, in the order of the replicas."""
        replicas = tuple(sorted(self._waiting))
        values, results = zip(*(self._waiting[each] for each in replicas), strict=True)
        self.state = self._apply(self.state, values)
        self.version += 1
        self._waiting.clear()
        self.updates.append(
            Update(self.version, self.state, stack(results), replicas, self.num_dropped)
        )
