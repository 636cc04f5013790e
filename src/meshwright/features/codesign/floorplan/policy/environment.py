"""A gymnasium environment in the conventions of Circuit Training.

One macro is placed in each step, by falling area, at the centre of a cell of the grid. The
grid lies in the middle of a padded one, whose cells are the actions, row by row from the
bottom. The reward is 0 until the last macro is placed, and then minus the exact proxy.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from meshwright.errors import FloorplanError, import_extra
from meshwright.features.codesign.floorplan.costs.evaluator import WEIGHTS
from meshwright.features.codesign.floorplan.netlist.canvas import Canvas
from meshwright.features.codesign.floorplan.netlist.frame import frame_of
from meshwright.features.codesign.floorplan.netlist.netlist import Netlist
from meshwright.features.codesign.floorplan.netlist.placement import ChipPlacement
from meshwright.features.codesign.floorplan.policy.episodes import (
    INFEASIBLE,
    Episodes,
    weighted,
)
from meshwright.features.codesign.floorplan.policy.graph import (
    HARD,
    PORTS,
    SOFT,
    NetlistGraph,
    make_graph,
)
from meshwright.features.codesign.floorplan.policy.task import MacroTask, make_task
from meshwright.learn.graphs import pad_rows
from meshwright.search.arrays import Bools

type Observation = dict[str, NDArray[Any]]

MAX_GRID = 128
"""Rows and columns of Circuit Training's padded grid."""

_WIRES = 100.0
"""Largest number of wires per micron in observations, unless the netlist has more."""

_NOT_PLACED = 0.5
"""Coordinates of macros without a place, as shares of the canvas (Circuit Training)."""


def environment(
    netlist: Netlist,
    canvas: Canvas | ChipPlacement | None = None,
    *,
    weights: Sequence[float] = WEIGHTS,
    max_grid: int = MAX_GRID,
    max_nodes: int | None = None,
    max_edges: int | None = None,
) -> "EnvironmentSteps":
    """A gymnasium environment in which an agent places the macros of a netlist.

    Soft macros are placed at the end of an episode, by forces. An action at which the mask
    is 0 places nothing and ends the episode, and so does a macro without any free cell; the
    reward is then -4.

    canvas: canvas, or placement whose canvas and fixed blocks are taken; see `frame_of`.
    max_grid: rows and columns of the padded grid of actions.
    max_nodes, max_edges: sizes to which the graph is padded, by default its own.
    """
    task = make_task(frame_of(netlist, canvas), weights)
    graph = make_graph(task)
    sizes = _Sizes(
        max_grid,
        max(1, len(graph.types)) if max_nodes is None else max_nodes,
        max(1, len(graph.edges)) if max_edges is None else max_edges,
    )
    for name, size, least, what in (
        ("max_grid", sizes.grid, max(task.rows, task.columns), "rows or columns"),
        ("max_nodes", sizes.nodes, len(graph.types), "nodes"),
        ("max_edges", sizes.edges, len(graph.edges), "edges"),
    ):
        if size < least:
            raise FloorplanError(f"{name} is {size}; the netlist has {least} {what}")
    return _environment_class()(task, graph, sizes)


class _Sizes(NamedTuple):
    """Sizes to which observations are padded."""

    grid: int
    nodes: int
    edges: int


class EnvironmentSteps:
    """The steps of an environment; `environment` adds gymnasium's class of environments."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}

    def __init__(self, task: MacroTask, graph: NetlistGraph, sizes: _Sizes) -> None:
        self._task, self._graph, self._sizes = task, graph, sizes
        self._below = (sizes.grid - task.rows) // 2
        self._before = (sizes.grid - task.columns) // 2
        self._static = _static_part(task, graph, sizes)
        self._episodes = Episodes(task, 1)
        self._is_over = True
        self.action_space = _spaces().Discrete(sizes.grid**2)
        self.observation_space = _space_of(self._observation(), sizes)

    @property
    def placement(self) -> ChipPlacement:
        """The placement so far; macros without a place are far off the canvas."""
        return self._episodes.placement(0)

    def action_masks(self) -> Bools:
        """Actions at which the current macro may be placed, [actions].

        Maskable agents of other libraries look for this name.
        """
        return self._mask().astype(np.bool_)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode; nothing in it is random."""
        del options
        super().reset(seed=seed)  # pyright: ignore[reportAttributeAccessIssue]
        self._episodes.reset()
        self._is_over = False
        return self._observation(), _info(None)

    def step(
        self, action: int
    ) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Place the current macro; returns gymnasium's five values."""
        if self._is_over:
            raise FloorplanError(
                "the episode is over; call reset() to begin another one"
            )
        if not (
            np.issubdtype(np.asarray(action).dtype, np.integer)
            and np.size(action) == 1
            and 0 <= int(action) < self._sizes.grid**2
        ):
            raise FloorplanError(
                f"the action is {action!r:.60}; wanted 0 to {self._sizes.grid**2 - 1}"
            )
        cell = self._cell(int(action))
        if cell is None:
            self._is_over = True
            return self._observation(), INFEASIBLE, True, False, _info(None)
        self._episodes.act(np.array([cell]))
        self._is_over = self._episodes.is_over
        parts = self._episodes.finish(0) if self._is_over else None
        reward = 0.0
        if self._is_over:
            reward = INFEASIBLE
            if parts is not None:
                reward = -weighted(self._task.weights, parts)
        return self._observation(), reward, self._is_over, False, _info(parts)

    def _cell(self, action: int) -> int | None:
        """The cell of an action; `None` if the macro must not be placed there."""
        row = action // self._sizes.grid - self._below
        column = action % self._sizes.grid - self._before
        if not (0 <= row < self._task.rows and 0 <= column < self._task.columns):
            return None
        cell = row * self._task.columns + column
        return cell if self._episodes.free[0, cell] else None

    def _mask(self) -> NDArray[np.int32]:
        """1 for each action that is allowed, 0 for others, [actions]."""
        mask = np.zeros((self._sizes.grid, self._sizes.grid), np.int32)
        rows, columns = self._task.rows, self._task.columns
        if not self._is_over:
            inner = self._episodes.free[0].reshape(rows, columns)
            mask[
                self._below : self._below + rows, self._before : self._before + columns
            ] = inner
        return mask.ravel()

    def _observation(self) -> Observation:
        """The observation before the next step, or after the last one."""
        task, graph, canvas = self._task, self._graph, self._task.frame.canvas
        step = min(self._episodes.step, len(task.order) - 1)
        is_placed = graph.is_fixed.copy()
        x, y = graph.x.copy(), graph.y.copy()
        placed = task.order[: self._episodes.step]
        nodes = graph.node_of_block[placed]
        is_placed[nodes] = True
        x[nodes], y[nodes] = self._episodes.x[0, placed], self._episodes.y[0, placed]
        size = self._sizes.nodes
        return {
            **{name: values.copy() for name, values in self._static.items()},
            "locations_x": _padded(
                np.where(is_placed, np.clip(x / canvas.width, 0, 1), _NOT_PLACED), size
            ),
            "locations_y": _padded(
                np.where(is_placed, np.clip(y / canvas.height, 0, 1), _NOT_PLACED), size
            ),
            "is_node_placed": _padded(is_placed, size, np.int32),
            "current_node": graph.node_of_block[task.order[step : step + 1]].astype(
                np.int32
            ),
            "mask": self._mask(),
        }


@cache
def _environment_class() -> Any:
    """The class of environments; gymnasium is imported here, and nowhere else."""
    gymnasium = import_extra(
        "gymnasium", "the environment needs gymnasium", "floorplan", FloorplanError
    )
    return type("MacroEnvironment", (EnvironmentSteps, gymnasium.Env), {})


def _spaces() -> Any:
    return import_extra(
        "gymnasium.spaces",
        "the environment needs gymnasium",
        "floorplan",
        FloorplanError,
    )


def _space_of(observation: Observation, sizes: _Sizes) -> Any:
    """The space of observations, with Circuit Training's bounds."""
    spaces, most = _spaces(), dict.fromkeys(observation, 1.0)
    for name in (name for name in observation if "rout" in name):
        most[name] = max(_WIRES, float(observation[name][0]))
    most |= dict.fromkeys(("sparse_adj_i", "sparse_adj_j"), sizes.nodes - 1)
    most |= dict.fromkeys(("edge_counts", "sparse_adj_weight"), sizes.edges)
    most |= {"node_types": PORTS, "current_node": max(sizes.nodes - 1, 1)}
    return spaces.Dict(
        {
            name: spaces.Box(0, most[name], values.shape, values.dtype)
            for name, values in observation.items()
        }
    )


def _static_part(task: MacroTask, graph: NetlistGraph, sizes: _Sizes) -> Observation:
    """The values of an observation that do not change."""
    canvas = task.frame.canvas
    edges, nodes, types = sizes.edges, sizes.nodes, graph.types
    scalars = {
        "normalized_num_edges": min(float(graph.weights.sum()) / edges, 1.0),
        "normalized_num_hard_macros": np.count_nonzero(types == HARD) / nodes,
        "normalized_num_soft_macros": np.count_nonzero(types == SOFT) / nodes,
        "normalized_num_port_clusters": np.count_nonzero(types == PORTS) / nodes,
        "horizontal_routes_per_micron": canvas.routes_across,
        "vertical_routes_per_micron": canvas.routes_up,
        "macro_horizontal_routing_allocation": canvas.macro_across,
        "macro_vertical_routing_allocation": canvas.macro_up,
        "grid_cols": canvas.columns / sizes.grid,
        "grid_rows": canvas.rows / sizes.grid,
    }
    return {
        **{name: np.array([value], np.float32) for name, value in scalars.items()},
        "sparse_adj_i": _padded(graph.edges[:, 0], edges, np.int32),
        "sparse_adj_j": _padded(graph.edges[:, 1], edges, np.int32),
        "sparse_adj_weight": _padded(graph.weights, edges),
        "edge_counts": _padded(graph.degrees, nodes, np.int32),
        "macros_w": _padded(graph.width / canvas.width, nodes),
        "macros_h": _padded(graph.height / canvas.height, nodes),
        "node_types": _padded(types, nodes, np.int32),
    }


def _padded(
    values: NDArray[Any], length: int, dtype: type[np.generic] = np.float32
) -> NDArray[Any]:
    return pad_rows(values.astype(dtype), length)


def _info(parts: tuple[float, float, float] | None) -> dict[str, float]:
    """The three costs of a finished placement; -1 before (Circuit Training)."""
    names = ("wirelength", "density", "congestion")
    return dict(zip(names, parts or (-1.0, -1.0, -1.0), strict=True))
