"""The objects in a cache as a set from which one can be drawn at random."""

from typing import NamedTuple

import numpy as np

from meshwright.search.compiled import compiled, compiled_in_place


class Members(NamedTuple):
    """A set of objects.

    objects: the members, in any order, first.
    at: place of each object in `objects`; -1 for one that is no member.
    stored: bytes of each object, as of the request that stored it.
    totals: number of the members, and their bytes.
    random: state of the generator that draws.
    """

    objects: np.ndarray
    at: np.ndarray
    stored: np.ndarray
    totals: np.ndarray
    random: np.ndarray


@compiled
def no_members(objects: int, seed: int) -> Members:
    """An empty set for so many objects."""
    return Members(
        np.zeros(objects, np.int32),
        np.full(objects, -1, np.int32),
        np.zeros(objects, np.int64),
        np.zeros(2, np.int64),
        np.full(1, np.uint64(2 * seed + 1) * np.uint64(0x9E3779B97F4A7C15), np.uint64),
    )


@compiled_in_place
def random_below(members: Members, limit: int) -> int:
    """A whole number from 0 to below a limit (xorshift; Marsaglia, 2003)."""
    value = members.random[0]
    value ^= value << np.uint64(13)
    value ^= value >> np.uint64(7)
    value ^= value << np.uint64(17)
    members.random[0] = value
    return int((value >> np.uint64(33)) % np.uint64(limit))


@compiled_in_place
def draw(members: Members) -> int:
    """A member at random."""
    return int(members.objects[random_below(members, members.totals[0])])


@compiled_in_place
def put(members: Members, each: int, size: int) -> None:
    """Add an object that is no member."""
    count = members.totals[0]
    members.objects[count] = each
    members.at[each] = count
    members.stored[each] = size
    members.totals[0] += 1
    members.totals[1] += size


@compiled_in_place
def drop(members: Members, each: int) -> None:
    """Take a member out."""
    members.totals[0] -= 1
    members.totals[1] -= members.stored[each]
    last = members.objects[members.totals[0]]
    members.objects[members.at[each]] = last
    members.at[last] = members.at[each]
    members.at[each] = -1
