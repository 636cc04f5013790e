"""Compiled policies as a cache that serves calls them: many requests in one call.

A state is handed over in a list of numba's that holds it alone: a call that unpacks a tuple
of dozens of arrays takes 4 to 10 us, a call that takes it from a list half as long.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba.typed import typedlist

from meshwright.features.policies.cache.eviction import foresight as seeing
from meshwright.features.policies.cache.eviction import halp as pairs
from meshwright.features.policies.cache.eviction import one_queue as queue
from meshwright.features.policies.cache.eviction import probation
from meshwright.features.policies.cache.eviction.learning.histories import History
from meshwright.features.policies.cache.eviction.queues import Queues
from meshwright.search.compiled import compiled

type _State = list[Any]
"""A list of one state, a tree of named tuples of arrays."""


class Rule(NamedTuple):
    """A policy.

    empty: the state of an empty cache, from a number of objects and a seed.
    serve: requests for objects of given sizes: the state, objects, sizes, their number,
        the bytes of the cache, and the number of the first request.
    forget: takes so many objects out of the state.
    most: the number of the last of its queues whose objects the cache has.
    known: what it knows of each object, if it learns.
    """

    empty: Callable[[int, int], Any]
    serve: Callable[[_State, np.ndarray, np.ndarray, int, int, int], None]
    forget: Callable[[_State, np.ndarray, int], None]
    most: int
    known: Callable[[Any], History | None]


@compiled
def _serve_sieve(
    states: _State,
    ids: np.ndarray,
    sizes: np.ndarray,
    number: int,
    capacity: int,
    now: int,
) -> None:
    """Requests under SIEVE."""
    state = states[0]
    for k in range(number):
        queue.request_one_queue(state, int(ids[k]), sizes[k], capacity, queue.SIEVE)


@compiled
def _forget_sieve(states: _State, ids: np.ndarray, number: int) -> None:
    """Take objects out of SIEVE."""
    state = states[0]
    for k in range(number):
        queue.forget_one_queue(state, int(ids[k]))


@compiled
def _serve_s3fifo(
    states: _State,
    ids: np.ndarray,
    sizes: np.ndarray,
    number: int,
    capacity: int,
    now: int,
) -> None:
    """Requests under S3-FIFO."""
    state = states[0]
    for k in range(number):
        probation.request_s3fifo(state, int(ids[k]), sizes[k], capacity)


@compiled
def _forget_s3fifo(states: _State, ids: np.ndarray, number: int) -> None:
    """Take objects out of S3-FIFO."""
    state = states[0]
    for k in range(number):
        probation.forget_s3fifo(state, int(ids[k]))


@compiled
def _serve_halp(
    states: _State,
    ids: np.ndarray,
    sizes: np.ndarray,
    number: int,
    capacity: int,
    now: int,
) -> None:
    """Requests under HALP."""
    state = states[0]
    for k in range(number):
        pairs.request_halp(state, int(ids[k]), sizes[k], capacity, now + k)


@compiled
def _forget_halp(states: _State, ids: np.ndarray, number: int) -> None:
    """Take objects out of HALP."""
    state = states[0]
    for k in range(number):
        pairs.forget_halp(state, int(ids[k]))


@compiled
def _serve_foresight(
    states: _State,
    ids: np.ndarray,
    sizes: np.ndarray,
    number: int,
    capacity: int,
    now: int,
) -> None:
    """Requests under Foresight."""
    state = states[0]
    for k in range(number):
        seeing.request_foresight(state, int(ids[k]), sizes[k], capacity, now + k)


@compiled
def _forget_foresight(states: _State, ids: np.ndarray, number: int) -> None:
    """Take objects out of Foresight."""
    state = states[0]
    for k in range(number):
        seeing.forget_foresight(state, int(ids[k]))


RULES: dict[str, Rule] = {
    "sieve": Rule(
        lambda objects, _seed: queue.empty_queue(objects),
        _serve_sieve,
        _forget_sieve,
        1,
        lambda _state: None,
    ),
    "s3fifo": Rule(
        lambda objects, _seed: probation.empty_s3fifo(objects),
        _serve_s3fifo,
        _forget_s3fifo,
        2,
        lambda _state: None,
    ),
    "halp": Rule(
        pairs.empty_halp, _serve_halp, _forget_halp, 1, lambda state: state.known
    ),
    "foresight": Rule(
        seeing.empty_foresight,
        _serve_foresight,
        _forget_foresight,
        2,
        lambda state: state.learned.known,
    ),
}
"""Compiled policies by name."""


def in_list(state: Any) -> _State:
    """A state as the compiled functions take it."""
    states: Any = typedlist.List()
    states.append(state)
    return states


def grown(old: Any, new: Any) -> Any:
    """The state `new`, which has room for more objects, with what `old` knows."""
    if isinstance(old, np.ndarray):
        if old.shape == new.shape:
            new[...] = old
        else:
            new[: len(old)] = old
        return new
    for name in old._fields:
        grown(getattr(old, name), getattr(new, name))
    before, after = _objects(old), _objects(new)
    if isinstance(old, Queues):
        for links, wider in ((old.before, new.before), (old.after, new.after)):
            moved = np.where(links >= before, links + after - before, links)
            wider[:before], wider[after:] = moved[:before], moved[before:]
        new.gone[:] = 0
    if isinstance(old, queue.OneQueue) and old.hand[0] >= before:
        new.hand[0] = old.hand[0] + after - before
    return new


def _objects(state: Any) -> int:
    """The number of objects that a queue, or a state with one, has room for."""
    queues = state if isinstance(state, Queues) else getattr(state, "queues", None)
    return 0 if queues is None else len(queues.place)
