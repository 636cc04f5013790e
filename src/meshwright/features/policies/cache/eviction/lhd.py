"""LHD (Beckmann et al., NSDI 2018): evict the object with the least hit density.

The hit density is the number of hits that an object will give, for each byte and request
that it is stored. It is estimated by the age and the class of an object; classes are by the
last distance of its requests. Ages are counted in steps of an eighth of an octave.
"""

from typing import NamedTuple

import numpy as np

from meshwright.features.policies.cache.eviction.learning.histories import (
    UNKNOWN,
    History,
    eighths,
    no_history,
    record,
)
from meshwright.features.policies.cache.eviction.learning.members import (
    Members,
    draw,
    drop,
    no_members,
    put,
)
from meshwright.search.compiled import compiled, compiled_in_place

_CANDIDATES, _CLASSES, _AGES = 64, 17, 255

_EVERY, _KEPT = 4096, 0.9
"""Densities are computed again after so many requests; older events then count less."""


class Lhd(NamedTuple):
    """Events by class and age, hits and evictions, and the densities that follow."""

    members: Members
    known: History
    hits: np.ndarray
    evictions: np.ndarray
    density: np.ndarray


@compiled
def _empty_lhd(objects: int, seed: int) -> Lhd:
    """A cache without objects; densities fall with age, as if it were LRU."""
    density = np.zeros((_CLASSES, _AGES + 1), np.float64)
    for age in range(_AGES):
        density[:, age] = 2.0 ** (-age / 8)
    events = np.zeros((2, _CLASSES, _AGES + 1), np.float64)
    return Lhd(
        no_members(objects, seed), no_history(objects), events[0], events[1], density
    )


def lhd(
    ids: np.ndarray, sizes: np.ndarray, capacity: int, hits: np.ndarray, seed: int
) -> None:
    """Fill in `hits` under LHD."""
    _run(_empty_lhd(ids.max() + 1, seed), ids, sizes, capacity, hits)


@compiled_in_place
def _run(
    state: Lhd, ids: np.ndarray, sizes: np.ndarray, capacity: int, hits: np.ndarray
) -> None:
    """Fill in `hits` under LHD."""
    members, known = state.members, state.known
    for t in range(len(ids)):
        each, size, now = ids[t], sizes[t], t + 1
        if members.at[each] >= 0:
            hits[t] = True
            age = eighths(float(now - known.asked[each]))
            state.hits[_class(known, each), age] += 1
        record(known, each, now)
        if now % _EVERY == 0:
            _learn(state)
        if hits[t] or size > capacity:
            continue
        while members.totals[1] + size > capacity:
            victim = _least_dense(state, now)
            age = eighths(float(now - known.asked[victim]))
            state.evictions[_class(known, victim), age] += 1
            drop(members, victim)
        put(members, each, size)


@compiled_in_place
def _class(known: History, each: int) -> int:
    """The class of an object: 0 if it was asked for once, else by its last distance."""
    gap = known.gaps[each, 0]
    return 0 if gap == UNKNOWN else 1 + gap // 16


@compiled_in_place
def _least_dense(state: Lhd, now: int) -> int:
    """The object with the least hit density among some drawn at random."""
    members, known = state.members, state.known
    victim, least = -1, np.inf
    for _ in range(_CANDIDATES):
        each = draw(members)
        age = eighths(float(now - known.asked[each]))
        density = state.density[_class(known, each), age] / members.stored[each]
        if density < least:
            victim, least = each, density
    return victim


@compiled_in_place
def _learn(state: Lhd) -> None:
    """Compute the densities: hits from an age on, for the time that is spent from it on."""
    for kind in range(_CLASSES):
        hits, events, time = 0.0, 0.0, 0.0
        for age in range(_AGES, -1, -1):
            hits += state.hits[kind, age]
            events += state.hits[kind, age] + state.evictions[kind, age]
            time += events * 2.0 ** (age / 8) / 8
            if events > 0:
                state.density[kind, age] = hits / time
            state.hits[kind, age] *= _KEPT
            state.evictions[kind, age] *= _KEPT
