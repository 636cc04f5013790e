"""Machines in tables: what there is, and a plan on several of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from meshwright.app import Plan
from meshwright.errors import MachineError, TargetError
from meshwright.machine import Machine, load_machine, preset_names

_DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class Budget:
    """Steps of a whole run, and where the number comes from."""

    steps: float
    reason: str


def machine_rows() -> Iterator[dict[str, Any]]:
    """The presets, one device of each, as plain data."""
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
    """A line for each machine; numbers are those of one device."""
    table = Table(box=None, pad_edge=False)
    for name in ("name", "machine"):
        table.add_column(name)
    for name in ("16-bit TFLOP/s", "GiB", "GB/s", "W", "$/h"):
        table.add_column(name, justify="right")
    table.add_column("links, GB/s each way")
    for row in rows:
        links = zip(row["links"], row["link_bytes_per_s"], strict=True)
        table.add_row(
            row["name"],
            row["title"],
            f"{row['half_flops_per_s'] / 1e12:.4g}",
            f"{row['hbm_bytes'] / 2**30:.0f}",
            f"{row['hbm_bytes_per_s'] / 1e9:.0f}",
            _or_dash(row["mean_w"], ".0f"),
            _or_dash(row["usd_per_hour"], ".2f"),
            "; ".join(f"{name} {rate / 1e9:.3g}" for name, rate in links),
        )
    return table


def find_machines(names: str, num_devices: int) -> list[Machine]:
    """The machines that a list with commas names, each with as many devices."""
    chosen = [name.strip() for name in names.split(",") if name.strip()]
    if not chosen:
        raise MachineError(
            f"no machine in {names!r}; there are {', '.join(preset_names())}"
        )
    return [load_machine(name, num_devices) for name in chosen]


def check_compares(options: Mapping[str, object], machines: str | None) -> None:
    """Refuse options that only tell of --machines, where there are none."""
    given = [name for name, value in options.items() if value is not None]
    if given and machines is None:
        raise TargetError(
            f"{given[0]} counts on each of --machines, such as --machines "
            "tpu-v5e,h100; none is named"
        )


def find_budget(
    plan: Plan, tokens: float | None, samples: float | None
) -> Budget | None:
    """How many steps a run takes; None if nothing was asked.

    A step's samples are the first dim of the first input that is no state; its tokens
    are all elements of the first such input of whole numbers with two dims.
    """
    if tokens is None and samples is None:
        return None
    if tokens is not None and samples is not None:
        raise TargetError("give --tokens or --samples, not both")
    total = samples if tokens is None else tokens
    assert total is not None, "one of the two was given"
    if not 0 < total < math.inf:
        name = "samples" if tokens is None else "tokens"
        raise TargetError(f"--{name} is {total:g}; wanted a finite number above 0")
    assert plan.decided is not None, "a plan that was made here has its program"
    state = set(plan.decided.captured.ties.values())
    given = [leaf for i, leaf in enumerate(plan.inputs) if i not in state]
    rank = 2 if samples is None else 1
    fitting = [
        leaf
        for leaf in given
        if (len(leaf.shape) == 2 and "int" in leaf.dtype if rank == 2 else leaf.shape)
    ]
    if not fitting:
        what = "whole numbers with two dims" if rank == 2 else "a batch"
        raise TargetError(f"no input is {what}, so that a step has no known size")
    leaf = fitting[0]
    size = math.prod(leaf.shape[:rank])
    unit = "tokens" if samples is None else "samples"
    return Budget(total / size, f"{total:.3g} {unit}, {size:,} a step ({leaf.path})")


def comparison_rows(
    plans: Sequence[Plan], budget: Budget | None
) -> list[dict[str, Any]]:
    """A plan on each of several machines, as plain data."""
    rows: list[dict[str, Any]] = []
    for plan in plans:
        found = plan.figures
        assert found is not None, "a plan on a machine"
        row: dict[str, Any] = {
            "machine": found.machine,
            "devices": found.num_devices,
            "step_time_s": found.step_time_s,
            "mfu": found.mfu,
            "peak_memory_bytes": found.peak_memory_bytes,
            "usable_bytes": found.usable_bytes,
            "fits": found.fits,
            "energy_j": found.energy_j,
            "is_peak_power": found.is_peak_power,
            "cost_usd": found.cost_usd,
            "co2e_g": found.co2e_g,
        }
        if budget is not None:
            row["days"] = budget.steps * found.step_time_s / _DAY_S
            row["run_usd"] = _times(budget.steps, found.cost_usd)
            row["run_co2e_t"] = _times(budget.steps / 1e6, found.co2e_g)
        rows.append(row)
    return rows


def comparison_table(rows: Sequence[dict[str, Any]], budget: Budget | None) -> Table:
    """A line for each machine: a step, and the whole run if there is a budget."""
    notes = [] if budget is None else [f"run: {budget.reason}"]
    notes += _unknown(rows)
    table = Table(
        box=None,
        pad_edge=False,
        caption="\n".join(notes) or None,
        caption_justify="left",
    )
    table.add_column("machine")
    names = ["devices", "step", "MFU", "memory GiB", "of", "J", "$", "gCO2e"]
    for name in names + ([] if budget is None else ["days", "run $", "tCO2e"]):
        table.add_column(name, justify="right")
    table.add_column("")
    for row in rows:
        cells = [
            row["machine"],
            str(row["devices"]),
            seconds(row["step_time_s"]),
            f"{100 * row['mfu']:.1f} %",
            f"{row['peak_memory_bytes'] / 2**30:.2f}",
            f"{row['usable_bytes'] / 2**30:.2f}",
            _or_dash(row["energy_j"], ".4g"),
            _or_dash(row["cost_usd"], ".3g"),
            _or_dash(row["co2e_g"], ".3g"),
        ]
        if budget is not None:
            cells += [
                _or_dash(row[k], ".4g") for k in ("days", "run_usd", "run_co2e_t")
            ]
        table.add_row(*cells, "" if row["fits"] else "DOES NOT FIT")
    return table


def _unknown(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Why some machines have no joules or dollars, or too many; how they get theirs."""
    peak = [row["machine"] for row in rows if row["is_peak_power"]]
    if peak:
        yield (
            f"J of {', '.join(peak)}: at peak power, so at most that, for no mean is "
            "known; a TOML of your own may set chip.mean_w"
        )
    for figure, what, key in (
        ("energy_j", "power", "mean_w"), ("cost_usd", "price", "usd_per_hour")
    ):  # fmt: skip
        names = [row["machine"] for row in rows if row[figure] is None]
        if names:
            yield (
                f"-: no {what} is known of {', '.join(names)}; a TOML of your own "
                f"may set chip.{key}"
            )


def seconds(value: float) -> str:
    """A time in the unit that suits it."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if value >= size:
            return f"{value / size:.4g} {unit}"
    return f"{value / 1e-6:.4g} us"


def _times(count: float, value: float | None) -> float | None:
    return None if value is None else count * value


def _or_dash(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
