"""Batches of replicas: shares of global batches, and the iterators of `input_fn`."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from meshwright.errors import ReplicaError
from meshwright.features.cluster.replicate.unmapped_values import show_path
from meshwright.jax_private import is_key
from meshwright.program.ir import show_type


@dataclass(frozen=True, slots=True)
class Context:
    """The information that `input_fn` gets about its replica.

    replica: index of the replica, from 0. num_replicas: number of replicas.
    is_stopped: a function that tells whether the run has ended, for an `input_fn` that
        waits.
    """

    replica: int
    num_replicas: int
    is_stopped: Callable[[], bool] = lambda: False

    def batch(self, total: int) -> int:
        """The number of examples per replica if a global batch has `total` examples.

        >>> Context(replica=0, num_replicas=4).batch(256)
        64
        """
        return _share_of(total, self.num_replicas, "the global batch")

    def share(self, batch: Any) -> Any:
        """This replica's part of a global batch, whose arrays are split along dim 0."""
        return jax.tree.map(lambda x: x[self.replica], split(batch, self.num_replicas))


def _share_of(count: int, replicas: int, what: str) -> int:
    if count % replicas:
        raise ReplicaError(
            f"{what} has {count} examples, which {replicas} replicas do not divide; "
            f"wanted a multiple of {replicas}"
        )
    return count // replicas


def split(batch: Any, replicas: int) -> Any:
    """Reshape a global batch [B, ...] to [replicas, B / replicas, ...].

    Raises `ReplicaError` if the number of replicas does not divide B.
    """

    def cut(path: Any, leaf: Any) -> Any:
        name, shape = show_path("batch", path), np.shape(leaf)
        if not shape:
            raise ReplicaError(
                f"{name} is a scalar, which cannot be divided among {replicas} replicas; "
                "give each replica its own, from input_fn"
            )
        share = _share_of(shape[0], replicas, name)
        return leaf.reshape(replicas, share, *shape[1:])

    return jax.tree_util.tree_map_with_path(cut, batch)


def stack(batches: Sequence[Any]) -> Any:
    """The batches of replicas as one pytree, stacked along a new dim 0."""
    return jax.tree.map(_stack, *batches)


def _stack(*leaves: Any) -> Any:
    if is_key(getattr(leaves[0], "dtype", None)):
        return jax.numpy.stack(leaves)
    return np.stack([np.asarray(leaf) for leaf in leaves])


InputFn = Callable[[Context], Iterator[Any]]
"""A function from a `Context` to an iterator over the batches of its replica."""


def open_inputs(
    input_fn: InputFn, replicas: int, is_stopped: Callable[[], bool]
) -> list[Iterator[Any]]:
    """An iterator over batches for each replica.

    All batches must have the types of the run's first batch.
    """
    contexts = [Context(i, replicas, is_stopped) for i in range(replicas)]
    types: list[Any] = []
    return [_checked(input_fn, context, types) for context in contexts]


def _checked(input_fn: InputFn, context: Context, types: list[Any]) -> Iterator[Any]:
    try:
        for batch in input_fn(context):
            found = jax.tree.map(_type_of, batch)
            if not types:  # another replica's thread may have been first
                types.append(found)
            if found != types[0]:
                raise ReplicaError(
                    f"the batch of replica {context.replica} is {found}, and the first "
                    f"one of the run was {types[0]}; wanted batches that are alike"
                )
            yield batch
    except ReplicaError:
        raise
    except Exception as error:
        raise ReplicaError(
            f"input_fn of replica {context.replica} raised {type(error).__name__}: {error}"
        ) from error


def _type_of(leaf: Any) -> str:
    aval: Any = jax.api_util.shaped_abstractify(leaf)
    return show_type(aval.shape, str(aval.dtype))
