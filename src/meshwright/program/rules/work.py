"""Operation counts of ops, by the rules of XLA's cost analysis.

An elementwise op counts one operation for each element of its result, a contraction two
for each product that it sums, without products with padding. Transcendental functions,
which XLA counts apart, have a count of their own here too. An op that only moves data
counts nothing. Each op's count is registered beside its factor rule in `ops`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from meshwright.program.ir import Op
from meshwright.program.records.fast_frozen import fast_frozen


@fast_frozen
@dataclass(frozen=True, slots=True)
class OpWork:
    """Operations of one application of an op.

    flops: additions, multiplications, comparisons and their like, of any dtype.
    transcendentals: evaluations of exponentials, roots and their like.
    """

    flops: int = 0
    transcendentals: int = 0

    def __add__(self, other: OpWork) -> OpWork:
        return OpWork(
            self.flops + other.flops, self.transcendentals + other.transcendentals
        )

    def __mul__(self, times: int) -> OpWork:
        return OpWork(self.flops * times, self.transcendentals * times)

    def scaled(self, share: float) -> OpWork:
        """The work on that share of the elements, rounded down."""
        return OpWork(int(self.flops * share), int(self.transcendentals * share))


NO_WORK = OpWork()
"""The work of an op that only moves data."""

CountWork = Callable[[Op], OpWork]

_COUNTS: dict[str, CountWork] = {}


def count_work(count: CountWork, *kinds: str) -> None:
    """Register how the work of these kinds of op is counted."""
    _COUNTS.update(dict.fromkeys(kinds, count))


def work_of(op: Op) -> OpWork:
    """The work of one op; none for a region op, since its bodies are counted instead."""
    count = _COUNTS.get(op.kind)
    return NO_WORK if count is None else count(op)


def one_per_element(op: Op) -> OpWork:
    """One operation for each element of the result."""
    return _flops_of(op.results[0].shape)


def one_transcendental_per_element(op: Op) -> OpWork:
    """One transcendental evaluation for each element of the result."""
    return _transcendentals_of(op.results[0].shape)


# Most ops are elementwise and their shapes recur, so that a cache saves most products.
@lru_cache(maxsize=4096)
def _flops_of(shape: tuple[int, ...]) -> OpWork:
    return OpWork(flops=math.prod(shape))


@lru_cache(maxsize=4096)
def _transcendentals_of(shape: tuple[int, ...]) -> OpWork:
    return OpWork(transcendentals=math.prod(shape))


def log2_rounded_up(extent: int) -> int:
    """The base-2 logarithm rounded up, at least 1: steps of a binary merge or search."""
    return max(1, math.ceil(math.log2(max(extent, 2))))
