"""Episodes: the macros of a chip get their places one by one, in several episodes at once.

At the end of an episode soft macros are placed by forces, and the exact costs are computed.
"""

import numpy as np
from numpy.typing import NDArray

from meshwright.features.codesign.floorplan.costs.grids import add_area
from meshwright.features.codesign.floorplan.costs.state import (
    congestion,
    density,
    make_state,
    recompute,
    wirelength,
)
from meshwright.features.codesign.floorplan.netlist.placement import ChipPlacement
from meshwright.features.codesign.floorplan.policy.board import (
    put_macros,
    write_all_free,
    write_maps,
)
from meshwright.features.codesign.floorplan.policy.task import AWAY, MacroTask
from meshwright.features.codesign.floorplan.starts.forces import (
    SCHEDULE,
    make_forces,
    place_soft,
)
from meshwright.search.arrays import Bools, Floats, Ints

INFEASIBLE = -4.0
"""Reward of an episode in which a macro finds no free cell (Circuit Training)."""

NUM_MAPS = 3
"""Maps of a step: free cells, distance from the point of pull, area that is covered."""


class Episodes:
    """E episodes of one task, which take their steps together.

    x, y: places of all blocks, [E, B]. area: share of each cell that placed blocks cover,
        [E, cells]. free: cells at which the current macro is legal, [E, cells].
    is_stuck: episodes that ended because a macro found no free cell, [E].
    step: macros that have a place, the same number in every episode that is not stuck.
    """

    def __init__(self, task: MacroTask, count: int) -> None:
        self.task, self.step = task, 0
        cells, blocks = task.rows * task.columns, len(task.tables.width)
        self.x, self.y = np.zeros((count, blocks)), np.zeros((count, blocks))
        self.area = np.zeros((count, cells))
        self.free: Bools = np.zeros((count, cells), np.bool_)
        self.is_stuck: Bools = np.zeros(count, np.bool_)
        self._state = make_state(task.tables, task.frame)
        self._forces = make_forces(task.tables)
        self.reset()

    def reset(self) -> None:
        """Take all macros away and begin again."""
        task = self.task
        moving = np.concatenate([task.room.hard, task.room.soft])
        self.x[:], self.y[:] = task.frame.x, task.frame.y
        self.x[:, moving] = self.y[:, moving] = AWAY
        self.area[:], self.is_stuck[:], self.step = 0.0, False, 0
        for block in np.setdiff1d(np.flatnonzero(task.tables.has_area), moving):
            place = (float(task.frame.x[block]), float(task.frame.y[block]))
            add_area(task.tables, int(block), place, self.area[0], 1.0)
        self.area[1:] = self.area[0]
        self._look()

    @property
    def is_over(self) -> bool:
        """Whether every macro has a place, or every episode is stuck."""
        return self.step == len(self.task.order) or bool(self.is_stuck.all())

    def act(self, cells: Ints) -> None:
        """Place the current macro at a cell in each episode; all must be free there.

        cells: [E]; those of stuck episodes are ignored.
        """
        assert (self.is_stuck | self.free[np.arange(len(cells)), cells]).all(), (
            "a macro was placed at a cell that is not free"
        )
        block, places = int(self.task.order[self.step]), (self.x, self.y)
        put_macros(self.task.tables, block, cells, places, (self.area, self.is_stuck))
        self.step += 1
        if self.step < len(self.task.order):
            self._look()

    def maps(self, side: int) -> NDArray[np.float32]:
        """Maps of the cells for an agent, [E, side, side, `NUM_MAPS`].

        Cells outside of the grid and those of stuck episodes are 0.
        """
        seen = np.zeros((len(self.x), side, side, NUM_MAPS), np.float32)
        write_maps(self.task.tables, self._points(), (self.free, self.area), seen)
        seen[self.is_stuck] = 0.0
        return seen

    def finish(self, episode: int) -> tuple[float, float, float] | None:
        """Place an episode's soft macros; returns wirelength, density and congestion.

        `None` if the episode is stuck.
        """
        if self.is_stuck[episode]:
            return None
        task, state = self.task, self._state
        state.x[:], state.y[:] = self.x[episode], self.y[episode]
        place_soft(task.tables, state, task.room, SCHEDULE, self._forces)
        recompute(task.tables, state)
        self.x[episode], self.y[episode] = state.x, state.y
        tables = task.tables
        return wirelength(tables, state), density(state), congestion(tables, state)

    def rewards(self) -> Floats:
        """Finish all episodes; minus the proxy of each, or `INFEASIBLE`, [E]."""
        weights, rewards = self.task.weights, np.full(len(self.x), INFEASIBLE)
        for episode in range(len(rewards)):
            parts = self.finish(episode)
            if parts is not None:
                rewards[episode] = -weighted(weights, parts)
        return rewards

    def placement(self, episode: int) -> ChipPlacement:
        """The placement of an episode that is finished."""
        x, y = self.x[episode].copy(), self.y[episode].copy()
        return self.task.frame.moved(x, y, self.task.frame.orientations)

    def _points(self) -> Floats:
        """The points to which nets pull the current macro, [E, 2]."""
        pull, step = self.task.pull, self.step
        placed, weights = self.task.order[:step], pull.weights[step, :step]
        x, y = (places[:, placed] @ weights for places in (self.x, self.y))
        return pull.anchors[step] + np.stack([x, y], axis=1)

    def _look(self) -> None:
        """Find the free cells of the current macro; episodes without any are stuck."""
        task, block = self.task, int(self.task.order[self.step])
        places = (self.x, self.y)
        write_all_free(task.tables, task.room, places, block, self.free)
        self.is_stuck |= ~self.free.any(axis=1)
        self.free[self.is_stuck] = False


def weighted(
    weights: tuple[float, float, float], parts: tuple[float, float, float]
) -> float:
    """The proxy of wirelength, density and congestion."""
    return sum(w * part for w, part in zip(weights, parts, strict=True))
