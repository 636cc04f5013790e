"""The search for a placement of least proxy cost."""

import time
from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path

from meshwright.errors import FloorplanError
from meshwright.features.codesign.floorplan.costs.evaluator import (
    WEIGHTS,
    check_weights,
)
from meshwright.features.codesign.floorplan.netlist.canvas import Canvas
from meshwright.features.codesign.floorplan.netlist.frame import frame_of
from meshwright.features.codesign.floorplan.netlist.netlist import Netlist
from meshwright.features.codesign.floorplan.netlist.placement import ChipPlacement
from meshwright.features.codesign.floorplan.placers.schedule import Limit
from meshwright.features.codesign.floorplan.placers.search import (
    OnProgress,
    PlacementSearch,
)
from meshwright.features.codesign.floorplan.placers.store import Store
from meshwright.features.codesign.floorplan.placers.task import PlacementTask
from meshwright.features.codesign.floorplan.views.found import FoundPlacement


def place(  # noqa: PLR0913  options of a search, by keyword
    netlist: Netlist,
    start: ChipPlacement | None = None,
    *,
    canvas: Canvas | ChipPlacement | None = None,
    method: str = "auto",
    weights: Sequence[float] = WEIGHTS,
    seconds: float = 600.0,
    evaluations: int | None = None,
    seed: int = 0,
    walkers: int = 2,
    policy: str | PathLike[str] | None = None,
    out: str | PathLike[str] | None = None,
    resume: str | PathLike[str] | None = None,
    progress: OnProgress | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> FoundPlacement:
    """The legal placement of least proxy that a search of so many seconds finds.

    start: placement from which to go on; by default places are drawn at random.
    canvas: canvas, or placement whose canvas and fixed blocks are taken; see `frame_of`.
    evaluations: moves that each walker evaluates, in place of `seconds`. The result then
        depends on nothing but the arguments.
    walkers: placements that are improved side by side, each in a thread.
    policy: folder or file of a trained policy for the method "policy"; by default the one
        that is shipped.
    out: `.plc` that always holds the best placement so far.
    resume: folder of a search that can be interrupted and go on.
    clock: by which `seconds` are counted; on a machine that others use, too, that of CPU
        seconds may be fairer.
    """
    frame = frame_of(netlist, canvas) if start is None else start
    if frame.netlist is not netlist:
        raise FloorplanError("the start is a placement of another netlist")
    search = PlacementSearch(
        PlacementTask(
            frame,
            start is not None,
            check_weights(weights),
            method,
            seed,
            walkers,
            None if policy is None else Path(policy),
            clock,
        ),
        Limit(seconds, evaluations),
        tuple(Path(path) for path in (out,) if path is not None),
        None if resume is None else Store(Path(resume)),
    )
    try:
        search.run(progress or (lambda point: None))
    except KeyboardInterrupt:
        search.is_interrupted = True
    return search.result()
