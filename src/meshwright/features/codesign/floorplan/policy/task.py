"""The placement of a netlist's macros one by one, as agents see it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from meshwright.errors import FloorplanError
from meshwright.features.codesign.floorplan.costs.evaluator import check_weights
from meshwright.features.codesign.floorplan.costs.tables import Tables, make_tables
from meshwright.features.codesign.floorplan.netlist.placement import ChipPlacement
from meshwright.features.codesign.floorplan.policy.pull import (
    Pull,
    adjacency,
    make_pull,
)
from meshwright.features.codesign.floorplan.starts.room import Room, make_room
from meshwright.features.codesign.floorplan.starts.start import check_fit, upright
from meshwright.search.arrays import Ints

AWAY = -1e12
"""Coordinate of macros that have no place yet."""


@dataclass(frozen=True, slots=True, eq=False)
class MacroTask:
    """All that does not change while the M macros of a chip get their places.

    frame: canvas and fixed blocks; macros that may move have the orientation N.
    order: blocks of the macros that may move, by falling area, [M].
    links: summed weight of the nets between two blocks, [B, B].
    """

    frame: ChipPlacement
    weights: tuple[float, float, float]
    tables: Tables
    room: Room
    order: Ints
    links: sparse.csr_array
    pull: Pull

    @property
    def rows(self) -> int:
        return self.tables.rows

    @property
    def columns(self) -> int:
        return self.tables.columns


def make_task(frame: ChipPlacement, weights: Sequence[float]) -> MacroTask:
    """The task of placing the macros of a netlist that may move."""
    tables = make_tables(frame)
    room = make_room(tables, frame)
    if not len(room.hard):
        raise FloorplanError(
            "the netlist has no macro that may move, so nothing to place one by one"
        )
    check_fit(frame, tables)
    is_free = ~frame.is_fixed & tables.has_area
    sizes = tables.width[room.hard] * tables.height[room.hard]
    order = room.hard[np.argsort(-sizes, kind="stable")]
    links = adjacency(tables)
    return MacroTask(
        upright(frame, tables),
        check_weights(weights),
        tables,
        room,
        order,
        links,
        make_pull(tables, links, order, is_free, (frame.x, frame.y)),
    )
