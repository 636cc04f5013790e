"""The parameter server of asynchronous replicas: one state, updated by their gradients.

The server keeps a version, the number of updates of the state. A replica reads state and
version, computes gradients and offers them. With a staleness of 0, an update takes the
mean over one contribution of each replica, which is what replicas in lockstep compute.
With a larger one, each contribution is an update of its own, unless the state has had more
than `staleness` updates since it was read; then it is dropped, and its replica computes it
again. (Bounded staleness: Q. Ho et al., "More Effective Distributed ML via a Stale
Synchronous Parallel Parameter Server", NIPS 2013, who let fast workers wait instead.)

The server has no threads and no clock; its caller has a lock.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from meshwright.app.replicate.inputs import stack


@dataclass(frozen=True, slots=True, eq=False)
class Contribution:
    """Values of one replica that the server averages, computed from one version.

    results: what the step returned beside the state.
    """

    replica: int
    version: int
    values: Any
    results: Any


@dataclass(frozen=True, slots=True, eq=False)
class Update:
    """One update of the state.

    version: number of updates so far, this one included. state: the state after it.
    replicas: indices of the replicas that contributed.
    results: the step's results of these replicas, stacked along a new dim 0.
    num_dropped: contributions dropped so far because they were too stale.
    """

    version: int
    state: Any
    results: Any
    replicas: tuple[int, ...]
    num_dropped: int = 0


Apply = Callable[[Any, Sequence[Any]], Any]
"""From a state and the values of one or more replicas to the next state."""


class ParameterServer:
    """The state, and contributions that wait for those of other replicas.

    updates: those that nobody has taken yet.
    """

    def __init__(self, state: Any, apply: Apply, replicas: int, staleness: int) -> None:
        self.state, self.version = state, 0
        self.updates: deque[Update] = deque()
        self.num_dropped = 0
        self._apply = apply
        self._replicas, self._staleness = replicas, staleness
        self._waiting: dict[int, Contribution] = {}

    def offer(self, given: Contribution) -> bool:
        """Whether a contribution is taken; if it is not, it is too stale."""
        if self.version - given.version > self._staleness:
            self.num_dropped += 1
            return False
        self._waiting[given.replica] = given
        if self._staleness or len(self._waiting) == self._replicas:
            self._update()
        return True

    def is_waiting(self, replica: int) -> bool:
        """Whether a contribution of this replica waits for those of others."""
        return replica in self._waiting

    def _update(self) -> None:
        """Update the state by all contributions, in the order of the replicas."""
        found = [self._waiting[replica] for replica in sorted(self._waiting)]
        self.state = self._apply(self.state, [each.values for each in found])
        self.version += 1
        self._waiting.clear()
        results = stack([each.results for each in found])
        replicas = tuple(each.replica for each in found)
        self.updates.append(
            Update(self.version, self.state, results, replicas, self.num_dropped)
        )
