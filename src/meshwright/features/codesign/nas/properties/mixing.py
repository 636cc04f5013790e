"""The mixing property: how positions of an input come together in an output.

For each dim of an input and each dim of an output, a class of the ordered lattice
none < one-to-one < many-to-one < all-to-one (alphaNAS calls the matrix of these a linear
operator). The class says how many positions along the input's dim the centre element of
the output depends on. It is none where the dims are not paired: where the slice of the
output through its centre, along the output's dim, does not depend on every position of
the input's dim.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from meshwright.features.codesign.nas.properties.regions import needed_regions
from meshwright.features.codesign.nas.properties.windows import Mask, Region
from meshwright.program.ir import Program, Value

NONE, ONE_TO_ONE, MANY_TO_ONE, ALL_TO_ONE = range(4)


@dataclass(frozen=True, slots=True)
class Mixing:
    """The dependence of an output on one input.

    reach: for each dim of the input, how many of its positions the output's centre
        element depends on, as a class of the lattice.
    paired: for each dim of the input, the dims of the output with which it is paired. A
        dim of one position has no positions to mix, and is paired with none.
    rank: dims of the output.
    """

    reach: tuple[int, ...]
    paired: tuple[frozenset[int], ...]
    rank: int

    @property
    def matrix(self) -> tuple[tuple[int, ...], ...]:
        """The class [dims of the input, dims of the output]."""
        return tuple(
            tuple(reach if e in pairs else NONE for e in range(self.rank))
            for reach, pairs in zip(self.reach, self.paired, strict=True)
        )

    @property
    def entries(self) -> tuple[int, ...]:
        """All classes in a row: of each dim of the input, its reach and its matrix row."""
        rows = zip(self.reach, self.matrix, strict=True)
        return tuple(c for reach, row in rows for c in (reach, *row))

    def __str__(self) -> str:
        rows = ("".join("-1m*"[c] for c in row) for row in self.matrix)
        return f"[{' '.join(rows)}]"


def identity(shape: tuple[int, ...]) -> Mixing:
    """The mixing of a value with itself."""
    pairs = tuple(frozenset({d} if n > 1 else ()) for d, n in enumerate(shape))
    return Mixing((ONE_TO_ONE,) * len(shape), pairs, len(shape))


def compose(first: Mixing, then: Mixing) -> Mixing:
    """The mixing of a path: `first` from an input to a value, `then` to the output.

    Over the dims of the value between, none annihilates, all-to-one on the input's side
    absorbs, and otherwise the larger class counts. Law: `mixing_of` infers the same for
    the whole path if windows are smaller than their dims and nothing is cut away.
    """
    reach: list[int] = []
    paired: list[frozenset[int]] = []
    for own, between in zip(first.reach, first.paired, strict=True):
        reach.append(
            own if own == ALL_TO_ONE else max([own, *(then.reach[m] for m in between)])
        )
        paired.append(
            frozenset(range(then.rank))
            if reach[-1] == ALL_TO_ONE
            else frozenset[int]().union(*(then.paired[m] for m in between))
        )
    return Mixing(tuple(reach), tuple(paired), then.rank)


def join(one: Mixing | None, other: Mixing | None) -> Mixing | None:
    """The mixing of two parallel paths together: the larger class of each pair of dims."""
    if one is None or other is None:
        return one or other
    reach = tuple(map(max, one.reach, other.reach))
    paired = tuple(a | b for a, b in zip(one.paired, other.paired, strict=True))
    return Mixing(reach, paired, one.rank)


def missing_mixing(wanted: Mixing | None, found: Mixing | None) -> float:
    """The share of the wanted classes (0 to 1) that are larger than those found."""
    if wanted is None:
        return 0.0
    required = [c for c in wanted.entries if c > NONE]
    if found is None:
        return 1.0
    pairs = zip(wanted.entries, found.entries, strict=True)
    return sum(w > f for w, f in pairs) / max(len(required), 1)


def mixing_of(
    program: Program, output: Value, inputs: Sequence[Value]
) -> list[Mixing | None]:
    """The mixing of `output` with each input; `None` if it does not depend on it."""
    centre = _centre(output.shape)
    slices = [
        centre[:e] + (np.ones(n, bool),) + centre[e + 1 :]
        for e, n in enumerate(output.shape)
    ]
    needed = [needed_regions(program, output, region) for region in (centre, *slices)]
    return [
        _mixing(value.shape, [each.get(value) for each in needed]) for value in inputs
    ]


def _centre(shape: tuple[int, ...]) -> Region:
    return tuple(np.arange(n) == n // 2 for n in shape)


def _mixing(shape: tuple[int, ...], regions: Sequence[Region | None]) -> Mixing | None:
    """The mixing with an input of this shape, from its needed regions.

    regions: those of the output's centre, and of its slices through the centre.
    """
    centre, *slices = regions
    if centre is None:
        return None
    return Mixing(
        tuple(map(_reach, centre)),
        tuple(
            frozenset(
                e for e, region in enumerate(slices) if region and region[d].all()
            )
            if n > 1
            else frozenset[int]()
            for d, n in enumerate(shape)
        ),
        len(slices),
    )


def _reach(mask: Mask) -> int:
    count = int(mask.sum())
    if count == len(mask) > 1:
        return ALL_TO_ONE
    return min(count, MANY_TO_ONE)
