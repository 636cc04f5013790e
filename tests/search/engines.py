"""All engines by name, each made from a seed; the contract tests run over this table."""

from __future__ import annotations

from collections.abc import Callable

from meshwright.search import (
    Annealing,
    Beam,
    Engine,
    Evolution,
    Exhaustive,
    Mcts,
    Sampling,
    Surrogate,
)

ENGINES: dict[str, Callable[[int], Engine]] = {
    "annealing": lambda seed: Annealing(seed),
    "beam": lambda seed: Beam(),
    "beam of one": lambda seed: Beam(width=1, slack=1),
    "beam of a level": lambda seed: Beam(width=200, slack=1),
    "exhaustive": lambda seed: Exhaustive(),
    "evolution": lambda seed: Evolution(seed),
    "mcts": lambda seed: Mcts(seed),
    "uct": lambda seed: Mcts(seed, widening=1, greed=0, num_draws=1, exploration=1.4),
    "sampling": lambda seed: Sampling(seed),
    "surrogate": lambda seed: Surrogate(seed),
}
COMPLETE = (
    "beam",
    "beam of one",
    "beam of a level",
    "exhaustive",
    "mcts",
    "uct",
)
"""Engines that notice when no state is left."""
