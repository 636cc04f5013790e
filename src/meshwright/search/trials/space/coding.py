"""Codes of a space as vectors of numbers: random ones, neighbours, and units.

Letters in shapes: N codes, G genes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from meshwright.errors import SearchError
from meshwright.search.arrays import Bools, Floats
from meshwright.search.trials.space.parts import Candidate, Gene, Space

type Key = tuple[float, ...]
"""The code of a candidate as a dict's key: equal for equal candidates."""


@dataclass(frozen=True, slots=True)
class Coding:
    """The genes of a space as arrays, [G] each."""

    space: Space
    genes: tuple[Gene, ...]
    low: Floats
    high: Floats
    is_choice: Bools
    is_whole: Bools
    is_log: Bools

    @classmethod
    def of(cls, space: Space) -> Coding:
        genes = tuple(space.genes())
        kinds = [gene.kind for gene in genes]
        return cls(
            space,
            genes,
            np.array([gene.low for gene in genes], np.float64),
            np.array([gene.high for gene in genes], np.float64),
            np.array([kind == "choice" for kind in kinds], np.bool_),
            np.array([kind in ("choice", "grid") for kind in kinds], np.bool_),
            np.array([kind == "log" for kind in kinds], np.bool_),
        )

    def units(self, codes: Floats) -> Floats:
        """Codes [..., G] scaled to numbers from 0 to 1."""
        low, high = self._scaled_ends()
        scaled = np.where(self.is_log, np.log(np.where(self.is_log, codes, 1)), codes)
        return (scaled - low) / np.where(high > low, high - low, 1)

    def from_units(self, units: Floats) -> Floats:
        """Codes [..., G] of numbers from 0 to 1; whole where genes are."""
        low, high = self._scaled_ends()
        codes = low + np.clip(units, 0, 1) * (high - low)
        codes = np.where(self.is_log, np.exp(np.where(self.is_log, codes, 0)), codes)
        codes = np.where(self.is_whole, np.round(codes), codes)
        return np.clip(codes, self.low, self.high)

    def _scaled_ends(self) -> tuple[Floats, Floats]:
        def scaled(ends: Floats) -> Floats:
            return np.where(self.is_log, np.log(np.where(self.is_log, ends, 1)), ends)

        return scaled(self.low), scaled(self.high)

    def random(self, rng: np.random.Generator, count: int) -> Floats:
        """Codes [N, G], spread evenly over each gene (a Latin hypercube)."""
        strata = np.stack(
            [rng.permutation(count) for _ in self.genes] or [np.zeros(count)], axis=1
        )[:, : len(self.genes)]
        units = (strata + rng.random(strata.shape)) / count
        levels = np.floor(units * (self.high - self.low + 1))
        return np.where(self.is_whole, levels, self.from_units(units))

    def random_one(self, rng: np.random.Generator) -> Floats:
        """A random code [G]."""
        units = rng.random(len(self.genes))
        levels = np.floor(units * (self.high - self.low + 1))
        return np.where(self.is_whole, levels, self.from_units(units))

    def used(self, code: Floats) -> list[int]:
        """The genes that a code's candidate uses."""
        used: list[int] = []
        self.space.decode(code.tolist(), 0, used)
        return used

    def clean(self, code: Floats) -> Floats:
        """The code with genes that its candidate does not use at their lowest value."""
        used, clean = self.used(code), self.low.copy()
        clean[used] = code[used]
        return clean

    def code_of(self, candidate: Candidate) -> Floats:
        """The code of a candidate; equal for equal candidates."""
        return self.clean(np.array(self.space.encode(candidate)))


@dataclass(slots=True)
class Draws:
    """What an engine draws codes from: a space, random numbers, and what it has seen.

    first: candidates to try before all others. seen: keys of all codes that `fresh` and
        `initial` gave.
    """

    space: Space
    rng: np.random.Generator
    num_costs: int
    first: Sequence[Candidate] = ()
    coding: Coding = field(init=False)
    seen: set[Key] = field(default_factory=set[Key])
    _left: list[Floats] | None = None

    def __post_init__(self) -> None:
        self.coding = Coding.of(self.space)

    def initial(self, count: int) -> Floats:
        """Codes [N, G] to begin with: the first candidates, then random ones."""
        codes = [self.coding.code_of(candidate) for candidate in self.first]
        for code in codes:
            self.seen.add(tuple(code.tolist()))
        spread = iter(self.coding.random(self.rng, count))
        while len(codes) < count:
            codes.append(self.fresh(lambda: next(spread, None)))
        return np.array(codes)

    def fresh(
        self, make: Callable[[], Floats | None] = lambda: None, tries: int = 20
    ) -> Floats:
        """A code [G] that is allowed and new, of `make` if that gives one.

        Otherwise it is random; in a space that is nearly used up it may be a known one.
        make: gives a code to try; `None` for a random one.
        """
        known = None
        for _ in range(tries):
            code = self._usable(make())
            if code is None:
                continue
            known = code
            if self._is_new(code):
                return code
        for _ in range(tries if self._left is None else 0):
            known = self.random()
            if self._is_new(known):
                return known
        for code in self._unseen():
            self._is_new(code)
            return code
        return self.random() if known is None else known

    def pool(self, count: int, make: Callable[[], Floats]) -> Floats:
        """New codes [N, G] to choose from, not yet given: half by `make`, half random.

        They are all that are left of a space with few left. `give` what is chosen.
        """
        if self.space.num_values <= _FEW and len(left := self._unseen()) <= count:
            return np.reshape(left, (len(left), len(self.coding.genes)))
        made: dict[Key, Floats] = {}
        for number in range(count):
            code = self._usable(make() if number % 2 else None)
            if code is not None and (key := tuple(code.tolist())) not in self.seen:
                made[key] = code
        return np.reshape(list(made.values()), (len(made), len(self.coding.genes)))

    def give(self, codes: Floats) -> Floats:
        """The codes, which count as given from now on."""
        self.seen.update(tuple(code) for code in codes.tolist())
        return codes

    @property
    def is_exhausted(self) -> bool:
        """Whether every candidate of a small space was given."""
        return self._left == []

    def _unseen(self) -> list[Floats]:
        """The codes of a small space that were not given, in random order."""
        if self._left is None and self.space.num_values <= _FEW:
            codes = [self.coding.code_of(c) for c in self.space.values()]
            self._left = [codes[i] for i in self.rng.permutation(len(codes))]
        left = [c for c in self._left or () if tuple(c.tolist()) not in self.seen]
        if self._left is not None:
            self._left = left
        return left

    def several(self, count: int, make: Callable[[], Floats | None]) -> Floats:
        """Codes [N, G] as `fresh` gives them."""
        return np.array([self.fresh(make) for _ in range(count)])

    def random(self) -> Floats:
        """A random code [G] that is allowed, new or not."""
        broken: dict[str, int] = {}
        for _ in range(_MOST_DRAWS):
            code = self.coding.clean(self.coding.random_one(self.rng))
            why = self.space.broken(self.space.decode(code.tolist()))
            if not why:
                return code
            broken[why] = broken.get(why, 0) + 1
        why = max(broken, key=lambda name: broken[name])
        raise SearchError(
            f"none of {_MOST_DRAWS} random candidates is allowed in the space; the "
            f"condition {why} excludes most ({broken[why]}): widen the space, or ask less"
        )

    def allowed(self, code: Floats) -> Floats:
        """The code with unused genes at rest; a random one if a condition excludes it."""
        usable = self._usable(code)
        return self.random() if usable is None else usable

    def _usable(self, code: Floats | None) -> Floats | None:
        if code is None:
            return self.random()
        code = self.coding.clean(code)
        return None if self.space.broken(self.space.decode(code.tolist())) else code

    def _is_new(self, code: Floats) -> bool:
        key = tuple(code.tolist())
        if key in self.seen:
            return False
        self.seen.add(key)
        return True


_FEW = 20_000
"""Candidates of a space that is small enough to list."""

_MOST_DRAWS = 10_000
"""Random candidates after which a space counts as one that allows none."""
