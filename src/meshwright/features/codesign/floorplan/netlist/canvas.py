"""The canvas of a chip: its size, its grid, and what the costs need of its wires."""

import math
from dataclasses import dataclass

from meshwright.errors import FloorplanError


@dataclass(frozen=True, slots=True)
class Blockage:
    """A rectangle that is reserved; lengths in microns.

    rate: 1.0 outside of a chip that is no rectangle, 0.99 reserved for standard cells, 0.1
        closed to macros (Circuit Training).
    """

    left: float
    bottom: float
    right: float
    top: float
    rate: float

    def __post_init__(self) -> None:
        sides = (self.left, self.bottom, self.right, self.top, self.rate)
        is_box = self.left <= self.right and self.bottom <= self.top
        if not (is_box and all(map(math.isfinite, sides))):
            raise FloorplanError(
                f"a blockage has {', '.join(f'{each:g}' for each in sides)}; wanted its "
                "left, bottom, right and top in microns, and its rate"
            )


@dataclass(frozen=True, slots=True)
class Canvas:
    """The area in which macros are placed, and the grid of the costs.

    width, height: microns.
    routes_across, routes_up: horizontal and vertical wires per micron.
    macro_across, macro_up: wires per micron that a macro takes away.
    smoothing: neighbouring columns (rows) over which vertical (horizontal) use is spread.
    overlap_threshold: kept for other tools; overlaps are measured exactly here.
    """

    width: float
    height: float
    columns: int
    rows: int
    routes_across: float = 57.031
    routes_up: float = 56.818
    macro_across: float = 39.583
    macro_up: float = 30.303
    smoothing: int = 0
    overlap_threshold: float = 0.0
    blockages: tuple[Blockage, ...] = ()

    def __post_init__(self) -> None:
        for name in (
            "width",
            "height",
            "columns",
            "rows",
            "routes_across",
            "routes_up",
        ):
            value = getattr(self, name)
            if not (value > 0 and math.isfinite(value)):
                raise FloorplanError(
                    f"the canvas has {name.replace('_', ' ')} {value}; wanted above 0"
                )
        if self.smoothing < 0 or min(self.macro_across, self.macro_up) < 0:
            raise FloorplanError(
                f"smoothing {self.smoothing} and wires used by macros "
                f"{self.macro_across}, {self.macro_up} have to be 0 or more"
            )

    @property
    def cell_width(self) -> float:
        """Width of a cell of the grid, in microns."""
        return self.width / self.columns

    @property
    def cell_height(self) -> float:
        """Height of a cell of the grid, in microns."""
        return self.height / self.rows


_FILL, _SIDE = 0.6, 10


def default_canvas(area: float) -> Canvas:
    """The canvas of Circuit Training's engine for blocks of so many square microns.

    A square that they fill to 60 %, a grid of 10 by 10 cells. (With the wires per micron of
    `Canvas`, it gives the costs that the engine's own test of `macro_tiles_10x10` asserts.)
    """
    side = math.sqrt(area / _FILL)
    return Canvas(side, side, _SIDE, _SIDE)
