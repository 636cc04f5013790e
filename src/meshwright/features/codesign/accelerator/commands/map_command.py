"""`meshwright accelerator map`: how a design computes one product."""

import json
from dataclasses import asdict
from typing import Annotated

from typer import Option

from meshwright.app.output.numbers import show_si
from meshwright.cli.arguments.options import AsJson
from meshwright.errors import AcceleratorError
from meshwright.features.codesign.accelerator.commands.options import DesignText
from meshwright.features.codesign.accelerator.design.design import Design
from meshwright.features.codesign.accelerator.mapping.map_product import map_product


def map_command(
    design: DesignText,
    gemm: Annotated[str, Option("--gemm", help="extents M x K x N: 512x1024x768")],
    dataflow: Annotated[
        str, Option("--dataflow", help="ws, os or is, in place of the design's")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Print the best mapping of one product: loops, tiles, cycles, bytes, energy."""
    m, k, n = _extents(gemm)
    found = map_product(Design.load(design), m=m, n=n, k=k, dataflow=dataflow)
    if as_json:
        entries = {"gemm": [m, k, n], **asdict(found), "energy_j": found.energy_j}
        print(json.dumps(entries, indent=1))
        return
    print(f"cycles   {found.cycles}, stalls {found.stall_cycles}")
    for memory, num_bytes in found.traffic_bytes.items():
        joules = show_si(found.energies_j[memory], "J")
        print(f"{memory:8} {show_si(num_bytes, 'B')}, {joules}")
    print(f"arrays   {show_si(found.energies_j['arrays'], 'J')}")
    print(found.schedule)


def _extents(text: str) -> tuple[int, int, int]:
    parts = text.lower().split("x")
    if len(parts) != 3 or not all(part.isdecimal() and int(part) for part in parts):
        raise AcceleratorError(f"--gemm is {text!r}; wanted M x K x N: 512x1024x768")
    m, k, n = map(int, parts)
    return m, k, n
