"""`Exchange`: what it means to average a value over replicas while a step is traced.

Synchronous replicas use a collective. Asynchronous steps are traced twice: once to record
the values to average, once with the averages given.
"""

from collections.abc import Callable, Iterator
from typing import Any

import jax

AXIS = "replica"
"""The name of the `jax.vmap` axis over replicas, and of the mesh axis."""

type Exchange = Callable[[Any, bool], Any]
"""The mean of a pytree over replicas, in a step that is traced.

The second argument says whether the pytree is a gradient that an optimizer takes.
"""


def lockstep_mean(tree: Any, is_gradient: bool) -> Any:
    """The mean of synchronous replicas: a collective in their one program."""
    del is_gradient
    return jax.lax.pmean(tree, AXIS)


class Recorder:
    """An exchange that records the values which a parameter server has to average.

    values: the values to average, in the order of the calls of `mean`.
    num_gradients: number of these values that are gradients.
    """

    def __init__(self, means: list[Any] | None = None) -> None:
        """means: the averages, in the order of the calls, as arguments of a program.

        Without them, a replica gets its own values back.
        """
        self._means: Iterator[Any] | None = None if means is None else iter(means)
        self.values: list[Any] = []
        self.num_gradients = 0

    def mean(self, tree: Any, is_gradient: bool) -> Any:
        """Record this replica's value; returns its mean, or the value itself."""
        self.values.append(tree)
        self.num_gradients += is_gradient
        return tree if self._means is None else next(self._means)
