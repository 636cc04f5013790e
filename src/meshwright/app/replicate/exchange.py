"""`Exchange`: the mean of a value over replicas while a step is traced."""

from collections.abc import Iterator
from typing import Any, Protocol

import jax

AXIS = "replica"
"""The name of the axis over which a step is mapped, and of the mesh's axis."""


class Exchange(Protocol):
    """The way in which values of one replica meet those of the others."""

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
    """A replica runs alone; what is to be averaged goes to a parameter server.

    values: what the step gave, in the order of its calls. num_gradients: how many of
    them came from an optimizer.
    """

    is_lockstep = False

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.num_gradients = 0

    def mean(self, tree: Any, is_gradient: bool) -> Any:
        """The value of this replica, which is recorded."""
        self.values.append(tree)
        self.num_gradients += is_gradient
        return tree


class Replace:
    """The server runs the step with means in place of what the step computes.

    asked: what the step would have given, in the order of its calls.
    """

    is_lockstep = False

    def __init__(self, means: list[Any]) -> None:
        self._means: Iterator[Any] = iter(means)
        self.asked: list[Any] = []

    def mean(self, tree: Any, is_gradient: bool) -> Any:
        """The next of the means."""
        del is_gradient
        self.asked.append(tree)
        return next(self._means)
