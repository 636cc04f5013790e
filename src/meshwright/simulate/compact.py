"""What a compiler stores without the padding of tiles, once a program does not fit.

XLA's rematerialisation does so before it makes anything again: what waits to be read is
copied into a form without padding, and back where it is read. So 144 features lie in 144
columns instead of 256 while they wait.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from meshwright.ir import Value
from meshwright.simulate.layout import Layout
from meshwright.simulate.memory import Memory

_LOOKS = 4
"""Times that the peak is looked at, which moves as values shrink."""

_WORTH = 0.1
"""Least share of a value that its padding is where it is worth copying."""


def compacted(
    memory: Memory,
    layout: Layout,
    limit: float,
    fixed: Collection[Value],
    measure: Callable[[Layout], Memory],
) -> tuple[Memory, Layout]:
    """A program's memory where no more is stored without padding than has to be.

    memory: under `layout`; `measure` tells it of another. limit: bytes that a device
    has. fixed: values that come or go as they are. One value at a time stands in both
    forms. What does not fit so either stays as it is.
    """
    found, tried = memory, layout
    tight: set[Value] = set()
    largest = 0
    for _ in range(_LOOKS):
        if found.peak_bytes <= limit:
            return found, tried
        saved = {
            value: padding
            for value in found.alive
            if value not in fixed
            and (padding := tried.size(value) - tried.num_bytes(value))
            > _WORTH * tried.size(value)
        }
        over = found.peak_bytes - found.beside_bytes + memory.beside_bytes - limit
        if sum(saved.values()) < over:
            break
        for value in sorted(saved, key=saved.__getitem__, reverse=True):
            if over + largest <= 0:
                break
            tight.add(value)
            largest = max(largest, layout.size(value))
            over -= saved[value]
        tried = layout.without_padding(frozenset(tight))
        found = replace(measure(tried), beside_bytes=memory.beside_bytes + largest)
    return (found, tried) if found.peak_bytes <= limit else (memory, layout)
