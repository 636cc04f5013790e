"""Legal starts: macros at the nearest free places, soft macros where their nets pull."""

import numpy as np

from meshwright.errors import FloorplanError
from meshwright.features.codesign.floorplan.costs.legality import overlaps_of
from meshwright.features.codesign.floorplan.costs.tables import Tables
from meshwright.features.codesign.floorplan.netlist.placement import (
    TURNED,
    ChipPlacement,
)
from meshwright.features.codesign.floorplan.starts.room import (
    Room,
    nearest_free,
)
from meshwright.search.arrays import Floats, Ints
from meshwright.search.compiled import compiled_in_place

_FINE = 100
"""Targets along each side of the canvas that the legalisation tries."""


def scatter(placement: ChipPlacement, tables: Tables, seed: int) -> ChipPlacement:
    """A placement at random: the positions that it had are not used, nor orientations.

    Macros are spread over the canvas and may overlap; soft macros are near its centre.
    """
    rng = np.random.default_rng(seed)
    free = ~placement.is_fixed & tables.has_area
    canvas, count = placement.canvas, int(free.sum())
    x, y = placement.x.copy(), placement.y.copy()
    wide = np.where(tables.is_hard[free], 1.0, 0.1)
    x[free] = canvas.width * (0.5 + wide * (rng.random(count) - 0.5))
    y[free] = canvas.height * (0.5 + wide * (rng.random(count) - 0.5))
    return upright(placement.moved(x, y, placement.orientations), tables)


def upright(placement: ChipPlacement, tables: Tables) -> ChipPlacement:
    """The placement with the orientation N for each block that may move.

    Blocks that are turned by 90 degrees stay as they are.
    """
    free = ~placement.is_fixed & tables.has_area
    orientations = tuple(
        "N" if f and o not in ("-", *TURNED) else o
        for f, o in zip(free, placement.orientations, strict=True)
    )
    return placement.moved(placement.x, placement.y, orientations)


def legalize(placement: ChipPlacement, tables: Tables, room: Room) -> ChipPlacement:
    """The placement with each macro moved to a free place near its own.

    Macros are taken by falling area. If one finds no place, all are packed from the lower
    left corner. Fails if that is impossible, too.
    """
    check_fit(placement, tables)
    sizes = tables.width[room.hard] * tables.height[room.hard]
    by_area = room.hard[np.argsort(-sizes, kind="stable")]
    by_height = room.hard[
        np.lexsort((-tables.width[room.hard], -tables.height[room.hard]))
    ]
    x, y = _inside(placement, tables)
    targets = _targets(placement)
    for order, is_packed in ((by_area, False), (by_height, True), (by_area, True)):
        places = (x.copy(), y.copy())
        scale = 0.0 if is_packed else 1.0
        wanted = (scale * x[order], scale * y[order])
        for centres in places:
            centres[order] = _AWAY
        if _place_all(tables, room, places, order, wanted, targets):
            return placement.moved(*places, placement.orientations)
    canvas = placement.canvas
    kept = len(room.solid) - len(room.hard)
    beside = f" beside {kept} fixed macros" if kept else ""
    beside += f" outside of {len(room.left)} blockages" if len(room.left) else ""
    raise FloorplanError(
        f"no legal packing of {len(room.hard)} macros was found on the canvas of "
        f"{canvas.width:g} x {canvas.height:g} um{beside}; make more room"
    )


def check_fit(placement: ChipPlacement, tables: Tables) -> None:
    """Fail if no legal placement can exist: areas, single macros, fixed macros."""
    canvas, netlist = placement.canvas, placement.netlist
    hard = np.flatnonzero(tables.is_hard)
    for block in hard.tolist():
        if tables.width[block] > canvas.width or tables.height[block] > canvas.height:
            raise FloorplanError(
                f"macro {netlist.nodes[netlist.blocks[block]].name!r} of "
                f"{tables.width[block]:g} x {tables.height[block]:g} um is larger than the "
                f"canvas of {canvas.width:g} x {canvas.height:g} um"
            )
    area = float(tables.width[hard] @ tables.height[hard])
    if area > canvas.width * canvas.height:
        raise FloorplanError(
            f"the macros have {area:.6g} um2 and cannot fit on the canvas of "
            f"{canvas.width:g} x {canvas.height:g} um ({canvas.width * canvas.height:.6g})"
        )
    kept = np.flatnonzero(placement.is_fixed & tables.is_hard).tolist()
    outside, overlaps = overlaps_of(placement, kept)
    for fault in (*(f"{name} leaves the canvas" for name in outside), *overlaps):
        raise FloorplanError(f"fixed macros are no legal start: {fault}")


def _inside(placement: ChipPlacement, tables: Tables) -> tuple[Floats, Floats]:
    """Centres of blocks, those that may move pulled onto the canvas."""
    free = ~placement.is_fixed & tables.has_area
    x, y = placement.x.copy(), placement.y.copy()
    for centres, sizes, end in (
        (x, tables.width, placement.canvas.width),
        (y, tables.height, placement.canvas.height),
    ):
        half = np.minimum(sizes, end) / 2
        centres[free] = np.clip(centres, half, end - half)[free]
    return x, y


def _targets(placement: ChipPlacement) -> tuple[Floats, Floats]:
    """Offsets from a place to all of a fine lattice, the nearest first, [targets]."""
    canvas = placement.canvas
    steps = np.arange(-_FINE, _FINE + 1) / _FINE
    dx, dy = np.meshgrid(steps * canvas.width, steps * canvas.height)
    near = np.argsort(np.hypot(dx, dy), axis=None, kind="stable")
    return dx.ravel()[near], dy.ravel()[near]


_AWAY = -1e12
"""Coordinate of macros that have no place yet."""


@compiled_in_place
def _place_all(
    tables: Tables,
    room: Room,
    places: tuple[Floats, Floats],
    order: Ints,
    wanted: tuple[Floats, Floats],
    targets: tuple[Floats, Floats],
) -> bool:
    """Give each macro in `order` the free place nearest to the wanted one.

    Returns whether all have one; `places` is changed.
    """
    for i in range(len(order)):
        is_free = False
        for j in range(len(targets[0])):
            x, y = wanted[0][i] + targets[0][j], wanted[1][i] + targets[1][j]
            if 0 <= x <= tables.width_all and 0 <= y <= tables.height_all:
                x, y, is_free = nearest_free(tables, room, places, order[i], (x, y))
                if is_free:
                    places[0][order[i]], places[1][order[i]] = x, y
                    break
        if not is_free:
            return False
    return True
