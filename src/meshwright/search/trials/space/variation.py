"""Mutation and crossover of codes, by kind of gene.

Numbers are changed by simulated binary crossover and polynomial mutation (Deb and
Agrawal, Complex Systems 1995), and rounded where genes are whole; options are exchanged
or drawn again. All functions take and give one code, [G].
"""

from __future__ import annotations

import numpy as np

from meshwright.search.arrays import Bools, Floats
from meshwright.search.trials.space.coding import Draws

_SWAP = 0.5
"""Probability that two parents exchange a gene."""


def cross(draws: Draws, one: Floats, other: Floats, spread: float = 15.0) -> Floats:
    """A child of two parents.

    spread: distribution index of the crossover; larger ones give children more like
        their parents.
    """
    rng, coding = draws.rng, draws.coding
    u = rng.random(len(one))
    beta = np.where(u <= 0.5, 2 * u, 1 / (2 * (1 - u + 1e-12))) ** (1 / (spread + 1))
    first, second = coding.units(one), coding.units(other)
    sign = 1 if rng.random() < 0.5 else -1
    mixed = ((first + second) - sign * beta * np.abs(first - second)) / 2
    child = coding.from_units(_reflected(mixed))
    swapped = rng.random(len(one)) < _SWAP
    child = np.where(swapped, child, one)
    taken = np.where(rng.random(len(one)) < _SWAP, other, one)
    return np.where(coding.is_choice, taken, child)


def mutate(
    draws: Draws, code: Floats, spread: float = 20.0, rate: float = 1.0
) -> Floats:
    """A code with about `rate` of the genes that it uses changed, at least one."""
    rng, coding = draws.rng, draws.coding
    used = np.array([i for i in coding.used(code) if coding.high[i] > coding.low[i]])
    if len(used) == 0:
        return code
    chosen = np.zeros(len(code), np.bool_)
    chosen[used] = rng.random(len(used)) < rate / len(used)
    if not chosen.any():
        chosen[used[rng.integers(len(used))]] = True
    return _changed(draws, code, chosen, spread)


def _changed(draws: Draws, code: Floats, chosen: Bools, spread: float) -> Floats:
    """The code with each chosen gene at another value."""
    rng, coding = draws.rng, draws.coding
    u = rng.random(len(code))
    power = 1 / (spread + 1)
    below = (2 * u) ** power - 1
    above = 1 - (2 * (1 - u)) ** power
    moved = coding.from_units(
        np.clip(coding.units(code) + np.where(u < 0.5, below, above), 0, 1)
    )
    # A whole gene moves by one level or more, away from an end of its range.
    step = np.where(u < 0.5, -1, 1)
    step = np.where(code + step < coding.low, 1, step)
    step = np.where(code + step > coding.high, -1, step)
    moved = np.where(coding.is_whole & (moved == code), code + step, moved)
    levels = np.maximum(coding.high - coding.low + 1, 2)
    jumps = 1 + np.floor(rng.random(len(code)) * (levels - 1))
    other = coding.low + (code - coding.low + jumps) % levels
    moved = np.where(coding.is_choice, other, moved)
    return np.where(chosen, moved, code)


def _reflected(units: Floats) -> Floats:
    """Numbers beyond 0 or 1, clipped to them."""
    return np.clip(units, 0, 1)
