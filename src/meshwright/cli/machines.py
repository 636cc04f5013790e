"""`meshwright machines`: a table of the preset machines, with figures of one device."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from meshwright.app.output.numbers import or_dash
from meshwright.app.output.table import Table
from meshwright.cli.arguments.options import AsJson, make_console
from meshwright.machine import load_machine, preset_names


def machines_command(as_json: AsJson = False) -> None:
    """List the preset machines, with figures of one device each.

    Each preset is a TOML file in the package's folder machine/presets, which states the
    source of each number.
    """
    rows = list(machine_rows())
    if as_json:
        print(json.dumps(rows, indent=1))
    else:
        make_console().print(machines_table(rows))


def machine_rows() -> Iterator[dict[str, Any]]:
    """The figures of one device of each preset machine, as plain data."""
    for name in preset_names():
        machine = load_machine(name, None)
        chip = machine.chip
        yield {
            "name": name,
            "title": machine.title,
            "devices_per_chip": machine.devices_per_chip,
            "half_flops_per_s": chip.half_flops_per_s,
            "hbm_bytes": chip.hbm_bytes,
            "hbm_bytes_per_s": chip.hbm_bytes_per_s,
            "links": [
                f"{level.name} {'x'.join(map(str, level.extents))} {level.kind.value}"
                for level in machine.levels
            ],
            "link_bytes_per_s": [level.link_bytes_per_s for level in machine.levels],
            "mean_w": chip.mean_w,
            "usd_per_hour": chip.usd_per_hour,
        }


def machines_table(rows: Sequence[dict[str, Any]]) -> Table:
    """A table with one row for each machine, and figures of one of its devices."""
    titles = (
        "name", "machine", ">16-bit TFLOP/s", ">GiB", ">GB/s", ">W", ">$/h",
        "links, GB/s each way",
    )  # fmt: skip
    return Table(titles, tuple(map(_cells, rows)))


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    links = zip(row["links"], row["link_bytes_per_s"], strict=True)
    return (
        row["name"],
        row["title"],
        f"{row['half_flops_per_s'] / 1e12:.4g}",
        f"{row['hbm_bytes'] / 2**30:.0f}",
        f"{row['hbm_bytes_per_s'] / 1e9:.0f}",
        or_dash(row["mean_w"], ".0f"),
        or_dash(row["usd_per_hour"], ".2f"),
        "; ".join(f"{name} {rate / 1e9:.3g}" for name, rate in links),
    )
