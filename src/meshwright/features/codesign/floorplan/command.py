"""`meshwright floorplan`: costs and legality of a chip's placement, and its search."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from meshwright.app.output.files import make_folder, output_file
from meshwright.app.output.progress import show_progress
from meshwright.cli.arguments.options import AsJson
from meshwright.errors import FloorplanError
from meshwright.features.codesign.floorplan.costs.evaluator import (
    PlacementCost,
    check_weights,
    cost,
)
from meshwright.features.codesign.floorplan.costs.legality import faults_of
from meshwright.features.codesign.floorplan.grouping.group import (
    PARTS,
    group,
    read_groups,
)
from meshwright.features.codesign.floorplan.netlist.files import write_whole
from meshwright.features.codesign.floorplan.netlist.frame import (
    frame_of,
    placement_beside,
    ports_of,
)
from meshwright.features.codesign.floorplan.netlist.netlist import (
    Netlist,
    NodeKind,
    read,
)
from meshwright.features.codesign.floorplan.netlist.placement import (
    ChipPlacement,
    read_placement,
)
from meshwright.features.codesign.floorplan.placers.place import place
from meshwright.features.codesign.floorplan.placers.schedule import METHODS
from meshwright.features.codesign.floorplan.train_command import train_command
from meshwright.features.codesign.floorplan.views.curve import SearchPoint
from meshwright.features.codesign.floorplan.views.page import describe, make_page

floorplan_command = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Place a chip's macros, and compute the exact proxy cost.",
)

_NetlistFile = Annotated[
    Path,
    Argument(metavar="NETLIST", help="text protobuf: netlist.pb.txt or .pb.txt.gz"),
]
_PlacementFile = Annotated[
    Path, Argument(metavar="PLACEMENT", help="placement of its blocks: .plc")
]
_Weights = Annotated[
    str, Option("--weights", help="of wirelength, density and congestion in the proxy")
]
_PageFile = Annotated[
    Path | None, Option("--html", help="file for a page with pictures and maps")
]


def _read_weights(text: str) -> tuple[float, float, float]:
    try:
        return check_weights([float(part) for part in text.split(",")])
    except ValueError:
        raise FloorplanError(f"--weights is {text!r}; wanted 1,0.5,0.5, say") from None


@floorplan_command.command("cost")
def cost_command(
    netlist: _NetlistFile,
    placement: _PlacementFile,
    weights: _Weights = "1,0.5,0.5",
    html: _PageFile = None,
    as_json: AsJson = False,
) -> None:
    """Print the exact costs of a placement, its overlaps, and macros off the canvas."""
    if html is not None:
        output_file(html)
    factors = _read_weights(weights)
    chip = read(netlist)
    placed = read_placement(chip, placement)
    found = cost(chip, placed)
    if html is not None:
        text = make_page({placement.name: placed}, factors)
        write_whole(html, text.encode())
    if as_json:
        print(json.dumps(_plain(found, factors)))
        return
    print("\n".join([str(chip), *describe(found, factors), *_faults(found)]))


def _plain(found: PlacementCost, weights: tuple[float, float, float]) -> dict[str, Any]:
    """The figures of a cost as plain data."""
    return {
        "wirelength": found.wirelength,
        "density": found.density,
        "congestion": found.congestion,
        "proxy": found.proxy(weights),
        "wires_um": found.wires,
        "weights": list(weights),
        "overlaps": [asdict(overlap) for overlap in found.overlaps],
        "outside": list(found.outside),
    }


def _faults(found: PlacementCost) -> list[str]:
    return [f"{n} leaves the canvas" for n in found.outside] + list(
        map(str, found.overlaps)
    )


@floorplan_command.command("check")
def check_command(
    netlist: _NetlistFile,
    placement: _PlacementFile,
    start: Annotated[
        Path | None,
        Option(
            help=".plc whose canvas, blockages and fixed blocks count; default: "
            "initial.plc beside NETLIST, or else ports where NETLIST has them"
        ),
    ] = None,
) -> None:
    """Check that a placement is legal.

    Macros must not overlap, leave the canvas, lie in blockages, or be turned by 90 degrees;
    canvas and fixed blocks must be as they were. Exit status 0: legal, 1: not, 2: misuse.
    """
    chip = read(netlist)
    placed = read_placement(chip, placement)
    given = read_placement(chip, start) if start else placement_beside(chip)
    before = given or ports_of(chip, placed.canvas)
    faults = faults_of(placed, before)
    print("\n".join(faults) if faults else "legal")
    raise typer.Exit(bool(faults))


@floorplan_command.command("place")
def place_command(  # noqa: PLR0913  an option each
    netlist: _NetlistFile,
    out: Annotated[
        Path, Option("--out", help="file for the best placement so far: .plc")
    ] = Path("placed.plc"),
    canvas: Annotated[
        Path | None,
        Option(
            help=".plc with canvas, grid, wires and fixed blocks; default: initial.plc "
            "beside NETLIST"
        ),
    ] = None,
    start: Annotated[
        Path | None,
        Option(help=".plc from which to go on; default: none of its places"),
    ] = None,
    method: Annotated[str, Option(help=", ".join(METHODS))] = "auto",
    policy: Annotated[
        Path | None,
        Option(help="folder or file of a trained policy, for the method policy"),
    ] = None,
    weights: _Weights = "1,0.5,0.5",
    seconds: Annotated[float, Option("--seconds", help="seconds to search")] = 600.0,
    evaluations: Annotated[
        int | None, Option(help="moves per walker, in place of --seconds; repeatable")
    ] = None,
    seed: Annotated[
        int, Option("--seed", min=0, max=2**31 - 1, help="random seed")
    ] = 0,
    resume: Annotated[
        Path | None,
        Option("--resume", help="folder of a search to begin or to go on with"),
    ] = None,
    html: _PageFile = None,
    as_json: AsJson = False,
) -> None:
    """Search for the legal placement of least proxy.

    The best placement so far is always on disk. Exit status 0: a placement was found, 2:
    misuse, or no legal placement.
    """
    for path in (out, html):
        if path is not None:
            output_file(path)
    factors = _read_weights(weights)
    chip = read(netlist)
    frame = _read_frame(chip, canvas)
    with show_progress(f"placing {netlist.name}") as show:
        found = place(
            chip,
            None if start is None else read_placement(chip, start),
            canvas=frame,
            method=method,
            policy=policy,
            weights=factors,
            seconds=seconds,
            evaluations=evaluations,
            seed=seed,
            out=out,
            resume=resume,
            progress=lambda point: show(_progress_line(point)),
        )
    found.save(out)
    if html is not None:
        found.report(html)
    if as_json:
        print(json.dumps(_plain(found.cost, factors) | found.facts()))
    else:
        print(found)


floorplan_command.command("train")(train_command)


@floorplan_command.command("group")
def group_command(  # noqa: PLR0913  an option each
    netlist: _NetlistFile,
    out: Annotated[
        Path, Option("--out", help="folder for netlist.pb.txt and initial.plc")
    ] = Path("grouped"),
    canvas: Annotated[
        Path | None,
        Option(
            help=".plc with canvas, wires and fixed blocks; default: initial.plc beside "
            "NETLIST"
        ),
    ] = None,
    parts: Annotated[
        int, Option(min=1, help="clusters besides those around macros and ports")
    ] = PARTS,
    groups: Annotated[
        Path | None,
        Option(help="file of lines 'cell number', in place of clusters of our own"),
    ] = None,
    seed: Annotated[
        int, Option("--seed", min=0, max=2**31 - 1, help="random seed")
    ] = 0,
    as_json: AsJson = False,
) -> None:
    """Group the standard cells of a flat netlist into soft macros, and choose a grid."""
    make_folder(out, FloorplanError)
    chip = read(netlist)
    found = group(
        chip,
        _read_frame(chip, canvas),
        parts=parts,
        groups=None if groups is None else read_groups(groups),
        seed=seed,
    )
    write_whole(out / "netlist.pb.txt", found.netlist.to_text().encode())
    write_whole(out / "initial.plc", found.to_text().encode())
    grid = {"columns": found.canvas.columns, "rows": found.canvas.rows}
    if as_json:
        soft = found.netlist.kinds.count(NodeKind.SOFT)
        print(json.dumps({"out": str(out), "soft_macros": soft, **grid}))
    else:
        print(f"{found.netlist}\ngrid        {grid['columns']} x {grid['rows']} cells")


def _read_frame(chip: Netlist, canvas: Path | None) -> ChipPlacement:
    """The canvas and fixed blocks: of the file that is named, or of the usual one."""
    return frame_of(chip, None if canvas is None else read_placement(chip, canvas))


def _progress_line(point: SearchPoint) -> str:
    return (
        f"{point.seconds:.0f} s  {point.stage}  {point.evaluations} moves  wirelength "
        f"{point.wirelength:.4f}  density {point.density:.4f}  congestion "
        f"{point.congestion:.4f}  best proxy {point.proxy:.4f}"
    )
