"""What is known of each object from its requests, and its features as numbers of 8 bits.

The features are those of LRB and HALP: the last distances between requests, counts that
decay at several speeds, the number of requests, their mean distance, the time since the
last one, the size, and two tags that come with a request. Each is the logarithm of a number
in eighths.
"""

import math
from typing import NamedTuple

import numpy as np

from meshwright.search.compiled import compiled, compiled_in_place

GAPS, DECAYS, TAGS = 8, 6, 2

FEATURES = GAPS + DECAYS + 4 + TAGS

_LAST_HALF_LIFE = 18
"""The decaying counts halve every 2^8, 2^10, ... 2^18 requests."""

_SLOWEST_RATE = -math.log(2) / 2**_LAST_HALF_LIFE

_FINEST = 16
"""A decayed count of a sixteenth is the least that a feature tells from none."""

UNKNOWN = np.uint8(255)
"""The feature of a distance between requests that did not take place."""


class History(NamedTuple):
    """What is known of each object.

    asked: number of the last request, counted from 1; 0 for none.
    requests: number of requests.
    mean: mean distance of the requests.
    gaps: features of the last distances, the newest first.
    decays: decaying counts, the fastest first, as of the last request.
    tags: features of the tags of the last request.
    """

    asked: np.ndarray
    requests: np.ndarray
    mean: np.ndarray
    gaps: np.ndarray
    decays: np.ndarray
    tags: np.ndarray


@compiled
def no_history(objects: int) -> History:
    """Nothing is known of any object."""
    return History(
        np.zeros(objects, np.int64),
        np.zeros(objects, np.int32),
        np.zeros(objects, np.float32),
        np.full((objects, GAPS), UNKNOWN),
        np.zeros((objects, DECAYS), np.float32),
        np.zeros((objects, TAGS), np.uint8),
    )


@compiled_in_place
def eighths(value: float) -> int:
    """The logarithm of a number to the base 2, in eighths from 0 to 254.

    The exponent and three bits of the mantissa of a float: exact at powers of 2, and
    linear between them.
    """
    bits = (np.float32(value).view(np.int32) >> 20) - (127 << 3)
    return int(min(max(bits, 0), 254))


@compiled_in_place
def _slowest_decay(gap: int) -> float:
    """What remains of the count that decays most slowly; its fourth power is the next."""
    return math.exp(gap * _SLOWEST_RATE)


@compiled_in_place
def record(known: History, each: int, now: int) -> None:
    """Remember a request for an object."""
    if known.asked[each]:
        gap = now - known.asked[each]
        for k in range(GAPS - 1, 0, -1):
            known.gaps[each, k] = known.gaps[each, k - 1]
        known.gaps[each, 0] = eighths(gap)
        known.mean[each] += (gap - known.mean[each]) / known.requests[each]
        left = _slowest_decay(gap)
        for k in range(DECAYS - 1, -1, -1):
            known.decays[each, k] *= left
            left = left * left * left * left
    known.asked[each] = now
    known.requests[each] += 1
    for k in range(DECAYS):
        known.decays[each, k] += np.float32(1)


@compiled_in_place
def describe(
    known: History, each: int, size: int, now: int, features: np.ndarray
) -> None:
    """Write the features of an object at a time."""
    for k in range(GAPS):
        features[k] = known.gaps[each, k]
    age = now - known.asked[each]
    left = _slowest_decay(age)
    for k in range(DECAYS - 1, -1, -1):
        features[GAPS + k] = eighths(1 + _FINEST * known.decays[each, k] * left)
        left = left * left * left * left
    at = GAPS + DECAYS
    features[at] = eighths(known.requests[each])
    mean = known.mean[each]
    features[at + 1] = eighths(mean) if mean > 0 else UNKNOWN
    features[at + 2] = eighths(1 + age)
    features[at + 3] = eighths(size)
    for k in range(TAGS):
        features[at + 4 + k] = known.tags[each, k]


@compiled_in_place
def forget_history(known: History, each: int) -> None:
    """Forget what is known of an object."""
    known.asked[each], known.requests[each], known.mean[each] = 0, 0, 0
    for k in range(GAPS):
        known.gaps[each, k] = UNKNOWN
    for k in range(DECAYS):
        known.decays[each, k] = 0
    for k in range(TAGS):
        known.tags[each, k] = 0


def tag_features(tags: np.ndarray) -> np.ndarray:
    """Features of the first tags of requests [N, TAGS]: logarithms, 0 for none."""
    out = np.zeros((len(tags), TAGS), np.uint8)
    some = np.minimum(1 + np.abs(tags[:, :TAGS]), 1e9).astype(np.float32)
    out[:, : some.shape[1]] = np.clip((some.view(np.int32) >> 20) - 1016, 0, 254)
    return out
