"""The search for one kernel's tile sizes as a search problem.

A state is a tiling (a choice of tile sizes); an action changes to another tiling.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from meshwright.features.tune.iree.space import TileSpace
from meshwright.features.tune.iree.tiling import Tiling

State = Tiling | None
"""A tiling (a choice of tile sizes); `None` stands for IREE's default."""


@dataclass(frozen=True, slots=True, eq=False)
class TileProblem:
    """The search for one kernel's tile sizes as states, actions and costs for `search`.

    pool: tilings that can be chosen in every state, besides the neighbours of the
        state.
    cost_fn: a tiling's time divided by the default's; infinite if it does not compile.
    """

    space: TileSpace
    pool: tuple[Tiling, ...]
    cost_fn: Callable[[State], float]

    def start(self) -> State:
        return None

    def actions(self, state: State) -> Sequence[Tiling]:
        near = [] if state is None else self.space.neighbours(state)
        return [t for t in dict.fromkeys((*self.pool, *near)) if t != state]

    def apply(self, state: State, action: Tiling) -> State:
        del state
        return action

    def cost(self, state: State) -> float:
        return self.cost_fn(state)

    def key(self, state: State) -> Hashable:
        return state
