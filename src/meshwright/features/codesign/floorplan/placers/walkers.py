"""Walkers: placements that are annealed side by side, in a thread each."""

from concurrent.futures import Executor
from dataclasses import dataclass

import numpy as np

from meshwright.features.codesign.floorplan.costs.state import (
    PlacementState,
    congestion,
    density,
    make_state,
    recompute,
    wirelength,
)
from meshwright.features.codesign.floorplan.costs.tables import TURNS, Tables
from meshwright.features.codesign.floorplan.netlist.placement import ChipPlacement
from meshwright.features.codesign.floorplan.placers.anneal import anneal
from meshwright.features.codesign.floorplan.placers.targets import Walk, make_walk
from meshwright.features.codesign.floorplan.starts.room import Room
from meshwright.search.arrays import Floats

_ORIENTATION = {turn: name for name, turn in TURNS.items()}


@dataclass(frozen=True, slots=True, eq=False)
class PlacementWalker:
    """One placement under way."""

    tables: Tables
    room: Room
    state: PlacementState
    walk: Walk
    weights: Floats

    def run(self, heat: Floats) -> None:
        """Try a move at each temperature.

        All is computed anew before, so that rounding errors do not add up, and a resumed
        search goes on exactly as one that was never stopped.
        """
        recompute(self.tables, self.state)
        anneal(self.tables, self.state, self.room, self.walk, self.weights, heat)

    @property
    def proxy(self) -> float:
        return float(self.walk.current[0])

    @property
    def costs(self) -> tuple[float, float, float]:
        """Wirelength, density and congestion."""
        tables, state = self.tables, self.state
        return wirelength(tables, state), density(state), congestion(tables, state)

    def placement(self, like: ChipPlacement) -> ChipPlacement:
        """The walker's placement."""
        turns = [
            (int(a), int(b), int(c), int(d)) for a, b, c, d in self.state.turn.tolist()
        ]
        orientations = tuple(
            o if o == "-" else _ORIENTATION[turn]
            for o, turn in zip(like.orientations, turns, strict=True)
        )
        return like.moved(self.state.x.copy(), self.state.y.copy(), orientations)

    def go_to(self, other: "PlacementWalker") -> None:
        """Continue from another walker's placement."""
        self.take(other.arrays())

    def arrays(self) -> dict[str, np.ndarray]:
        """All that the further way depends on, but for random numbers and windows."""
        state = self.state
        return {
            "x": state.x,
            "y": state.y,
            "turn": state.turn,
            "current": self.walk.current,
        }

    def take(self, arrays: dict[str, np.ndarray]) -> None:
        """Set the arrays that `arrays` gives."""
        for name, values in self.arrays().items():
            values[...] = arrays[name]

    def saved(self) -> dict[str, np.ndarray]:
        """All that a resumed search needs."""
        walk = self.walk
        return {**self.arrays(), "random": walk.random, "reach": walk.reach}

    def restore(self, saved: dict[str, np.ndarray]) -> None:
        """Set all that `saved` gives."""
        for name, values in self.saved().items():
            values[...] = saved[name]


def make_walker(
    tables: Tables, room: Room, start: ChipPlacement, weights: Floats, seed: int
) -> PlacementWalker:
    """A walker at a placement."""
    state, walk = make_state(tables, start), make_walk(tables, room, seed)
    walker = PlacementWalker(tables, room, state, walk, weights)
    walker.run(np.zeros(0))
    return walker


def run_all(pool: Executor, walkers: list[PlacementWalker], heat: Floats) -> None:
    """Run all walkers, each in a thread; compiled code holds no lock of Python."""
    list(pool.map(lambda walker: walker.run(heat), walkers))


def best_of(walkers: list[PlacementWalker]) -> PlacementWalker:
    """The walker of least proxy; the first of equal ones."""
    return min(walkers, key=lambda walker: walker.proxy)
