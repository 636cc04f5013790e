"""`Exchange`: what it means to average a value over replicas while a step is traced.

Synchronous replicas use a collective. Asynchronous steps are traced twice: once to record
the values to average, once with the averages given.
"""

from collections.abc import Iterator
from typing import Any, Protocol

import jax

AXIS = "replica"
"""The name of the `jax.vmap` axis over replicas, and of the mesh axis."""


class Exchange(Protocol):
    """The way in which a step averages values over replicas while it is traced."""

    is_lockstep: bool

    def mean(self, tree: Any, is_gradient: bool) -> Any:
        """The mean of a pytree over replicas.

        is_gradient: whether the pytree is a gradient that an optimizer takes.
        """
        ...


class Lockstep:
    """An exchange for synchronous replicas: a mean is a collective in their one program."""

    is_lockstep = True

    def mean(self, tree: Any, is_gradient: bool) -> Any:
        """The mean of a pytree over replicas, by `jax.lax.pmean`."""
        del is_gradient
        return jax.lax.pmean(tree, AXIS)


class Record:
    """An exchange that records the values which a parameter server has to average.

    values: the arguments of the calls of `mean`, in their order.
    num_gradients: number of these values that are gradients.
    """

    is_lockstep = False

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.num_gradients = 0

    def mean(self, tree: Any, is_gradient: bool) -> Any:
        """Record this replica's value, and return it unchanged."""
        self.values.append(tree)
        self.num_gradients += is_gradient
        return tree


class Replace:
    """An exchange whose `mean` returns means that were computed before.

    The step is traced with it to make the parameter server's program, which gets the means
    as arguments.
    asked: the values that the means replace, in the order of the calls of `mean`.
    """

    is_lockstep = False

    def __init__(self, means: list[Any]) -> None:
        self._means: Iterator[Any] = iter(means)
        self.asked: list[Any] = []

    def mean(self, tree: Any, is_gradient: bool) -> Any:
        """The mean that was given for this call; `tree` is recorded in `asked`."""
        del is_gradient
        self.asked.append(tree)
        return next(self._means)
