"""`Exchange`: the mean of a value over replicas while a step is traced."""

from collections.abc import Iterator
from typing import Any, Protocol

import jax

AXIS = "replica"
"""The name of the axis over which a step is mapped, and of the mesh's axis."""


class Exchange(Protocol):
    """How a step averages a value over replicas while it is traced."""

    is_lockstep: bool

    def mean(self, tree: Any, is_gradient: bool) -> Any:
        """The mean over replicas of a pytree."""
        ...


class Lockstep:
    """All replicas run one program, in which a mean is a collective."""

    is_lockstep = True

    def mean(self, tree: Any, is_gradient: bool) -> Any:
        """See `Exchange`."""
        del is_gradient
        return jax.lax.pmean(tree, AXIS)


class Record:
    """An exchange that records values for a parameter server; the replica runs alone.

    values: the arguments of the calls of `mean`, in their order. num_gradients: how many
    of them are gradients.
    """

    is_lockstep = False

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.num_gradients = 0

    def mean(self, tree: Any, is_gradient: bool) -> Any:
        """Record the value of this replica, and return it as it is."""
        self.values.append(tree)
        self.num_gradients += is_gradient
        return tree


class Replace:
    """An exchange with given means, with which the server runs the step.

    asked: the values for which the means stand, in the order of the calls of `mean`.
    """

    is_lockstep = False

    def __init__(self, means: list[Any]) -> None:
        self._means: Iterator[Any] = iter(means)
        self.asked: list[Any] = []

    def mean(self, tree: Any, is_gradient: bool) -> Any:
        """The next of the given means."""
        del is_gradient
        self.asked.append(tree)
        return next(self._means)
