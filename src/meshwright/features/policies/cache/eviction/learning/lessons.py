"""Examples for predictions of an object's next request, labelled when it comes.

An object is looked at when it is in the cache or was so lately, and its features are kept.
At its next request, or if none came within a window, the example has its label: the
logarithm of the time that passed, or of twice the window.
"""

import math
from typing import NamedTuple

import numpy as np

from meshwright.features.policies.cache.eviction.learning.histories import (
    FEATURES,
    History,
    describe,
)
from meshwright.search.compiled import compiled, compiled_in_place


class Lessons(NamedTuple):
    """Examples that wait for their label, in a ring, and examples with one.

    objects, times, features: those of the waiting examples; objects are -1 when labelled.
    older: the waiting example of the same object before each one, as a number.
    newest: number of the last example of each object; -1 for none.
    totals: number of examples that were ever looked at, of those that the window has
        passed, and of those that were ever labelled.
    examples, labels: the labelled ones, in a ring.
    """

    objects: np.ndarray
    times: np.ndarray
    features: np.ndarray
    older: np.ndarray
    newest: np.ndarray
    totals: np.ndarray
    examples: np.ndarray
    labels: np.ndarray


@compiled
def no_lessons(objects: int, waiting: int, labelled: int) -> Lessons:
    """No examples, with room for some that wait and some that are labelled."""
    return Lessons(
        np.full(waiting, -1, np.int32),
        np.zeros(waiting, np.int64),
        np.zeros((waiting, FEATURES), np.uint8),
        np.full(waiting, -1, np.int64),
        np.full(objects, -1, np.int64),
        np.zeros(3, np.int64),
        np.zeros((labelled, FEATURES), np.uint8),
        np.zeros(labelled, np.float32),
    )


@compiled_in_place
def look_at(
    lessons: Lessons, known: History, each: int, size: int, now: int, window: int
) -> None:
    """Keep an example of an object, and label those that waited for the whole window."""
    waiting = len(lessons.objects)
    number = lessons.totals[0]
    while lessons.totals[1] < number:
        oldest = lessons.totals[1] % waiting
        is_late = now - lessons.times[oldest] > window
        if not is_late and number - lessons.totals[1] < waiting:
            break
        if is_late and lessons.objects[oldest] >= 0:
            _label(lessons, oldest, math.log2(2 * window))
        lessons.objects[oldest] = -1
        lessons.totals[1] += 1
    at = number % waiting
    lessons.objects[at], lessons.times[at] = each, now
    describe(known, each, size, now, lessons.features[at])
    lessons.older[at] = lessons.newest[each]
    lessons.newest[each] = number
    lessons.totals[0] += 1


@compiled_in_place
def asked_again(lessons: Lessons, each: int, now: int) -> None:
    """Label the examples of an object that is asked for."""
    number = lessons.newest[each]
    lessons.newest[each] = -1
    while number >= lessons.totals[1]:
        at = number % len(lessons.objects)
        _label(lessons, int(at), math.log2(max(now - lessons.times[at], 1)))
        lessons.objects[at] = -1
        number = lessons.older[at]


@compiled_in_place
def _label(lessons: Lessons, at: int, label: float) -> None:
    """Move an example to the labelled ones."""
    to = lessons.totals[2] % len(lessons.labels)
    for k in range(FEATURES):
        lessons.examples[to, k] = lessons.features[at, k]
    lessons.labels[to] = label
    lessons.totals[2] += 1
