"""`meshwright plan --machine A,B`: compare the figures of one plan on several machines."""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from meshwright.app.output.numbers import or_dash, show_seconds, show_share
from meshwright.app.output.table import Table
from meshwright.app.plan import Plan
from meshwright.app.record.plan_record import program_of
from meshwright.app.record.step_record import figures_of
from meshwright.cli.arguments.options import make_console
from meshwright.errors import MachineError, TargetError
from meshwright.machine import Machine, load_machine, preset_names
from meshwright.machine.memory_size import show_bytes

_DAY_S = 86_400.0
_FIGURES = (
    "step_time_s", "mfu", "hfu", "peak_memory_bytes", "usable_bytes", "fits",
    "energy_j", "is_peak_power", "cost_usd", "co2e_g",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class RunLength:
    """The number of steps of a whole training run.

    reason: how the number was found, as text for the user.
    """

    steps: float
    reason: str


def find_machines(names: str, num_devices: int) -> list[Machine]:
    """The machines of a comma-separated list of names, each with `num_devices` devices."""
    listed = [name.strip() for name in names.split(",") if name.strip()]
    if not listed:
        raise MachineError(
            f"no machine in {names!r}; there are {', '.join(preset_names())}"
        )
    return [load_machine(name, num_devices) for name in listed]


def find_run_length(
    plan: Plan, tokens: float | None, samples: float | None
) -> RunLength | None:
    """The number of steps of a training run over `tokens` tokens or `samples` samples.

    `None` if neither is given. The size of a batch is read from the plan: see `_tokens_of`
    and `_samples_of`.
    """
    if tokens is None and samples is None:
        return None
    if tokens is not None and samples is not None:
        raise TargetError("give --tokens or --samples, not both")
    total, unit = (samples, "samples") if tokens is None else (tokens, "tokens")
    assert total is not None, "one of the two was given"
    if not 0 < total < math.inf:
        raise TargetError(f"--{unit} is {total:g}; wanted a finite number above 0")
    size, source = _tokens_of(plan) if unit == "tokens" else _samples_of(plan)
    return RunLength(total / size, f"{total:.3g} {unit}, {size:,} a step ({source})")


def _tokens_of(plan: Plan) -> tuple[int, str]:
    """The number of tokens that one step reads, and where the number comes from.

    That is the path of the input that holds them, or the option `--tokens-per-step`.
    """
    if plan.tokens_per_step is None:
        raise TargetError(
            "no input of the step is a matrix of integers, so that its tokens are unknown; "
            "say --tokens-per-step"
        )
    return plan.tokens_per_step, plan.token_input or "--tokens-per-step"


def _samples_of(plan: Plan) -> tuple[int, str]:
    """The number of samples that one step reads, and the path of the input that holds them.

    With an input of tokens, these are its sequences. Otherwise it is the first dim of the
    first input that is no state, that is, which the step does not return in updated form.
    """
    for leaf in plan.inputs:
        if leaf.path == plan.token_input:
            return math.prod(leaf.shape[:-1]), leaf.path
    state = set(program_of(plan).captured.ties.values())
    for i, leaf in enumerate(plan.inputs):
        if i not in state and leaf.shape:
            return leaf.shape[0], leaf.path
    raise TargetError("no input is a batch: the samples of a step are unknown")


def comparison_rows(
    plans: Sequence[Plan], run: RunLength | None
) -> list[dict[str, Any]]:
    """The figures of one plan on several machines, as plain data, one row for each machine.

    plans: the plan, once for each machine. run: adds days, cost and emissions of the run.
    """
    rows: list[dict[str, Any]] = []
    for plan in plans:
        figures = figures_of(plan)
        row: dict[str, Any] = {
            "machine": figures.machine,
            "devices": figures.num_devices,
        }
        row |= {name: getattr(figures, name) for name in _FIGURES}
        if run is not None:
            row["days"] = run.steps * figures.step_time_s / _DAY_S
            row["run_usd"] = _times(run.steps, figures.cost_usd)
            row["run_co2e_t"] = _times(run.steps / 1e6, figures.co2e_g)
        rows.append(row)
    return rows


def comparison_table(rows: Sequence[dict[str, Any]], run: RunLength | None) -> Table:
    """A table of the figures of one step, with a row for each machine.

    With `run`, it also has the figures of the whole training run.
    """
    titles = [">devices", ">step", ">MFU", ">memory", ">of", ">J", ">$", ">gCO2e"]
    titles += [] if run is None else [">days", ">run $", ">tCO2e"]
    table: list[tuple[str, ...]] = []
    for row in rows:
        cells = [
            row["machine"],
            str(row["devices"]),
            show_seconds(row["step_time_s"]),
            show_share(row["mfu"]),
            show_bytes(row["peak_memory_bytes"]),
            show_bytes(row["usable_bytes"]),
            or_dash(row["energy_j"], ".4g"),
            or_dash(row["cost_usd"], ".3g"),
            or_dash(row["co2e_g"], ".3g"),
        ]
        if run is not None:
            cells += [or_dash(row[k], ".4g") for k in ("days", "run_usd", "run_co2e_t")]
        table.append((*cells, "" if row["fits"] else "DOES NOT FIT"))
    return Table(("machine", *titles, ""), tuple(table))


def _notes_on_unknown(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Notes on machines without a known power or price, and on how to provide it."""
    peak = [row["machine"] for row in rows if row["is_peak_power"]]
    if peak:
        yield (
            f"J of {', '.join(peak)}: an upper bound, at peak power, since no mean power "
            "is known; a TOML file of your own may set chip.mean_w"
        )
    for figure, what, key in (
        ("energy_j", "power", "mean_w"), ("cost_usd", "price", "usd_per_hour")
    ):  # fmt: skip
        names = [row["machine"] for row in rows if row[figure] is None]
        if names:
            yield (
                f"-: no {what} is known of {', '.join(names)}; a TOML file of your own "
                f"may set chip.{key}"
            )


def _times(count: float, value: float | None) -> float | None:
    return None if value is None else count * value


def print_comparison(
    title: str, plans: Sequence[Plan], run: RunLength | None, as_json: bool
) -> None:
    """Print a table of one plan on several machines below a title, or print it as JSON."""
    rows = comparison_rows(plans, run)
    if as_json:
        print(json.dumps(rows, indent=1))
    else:
        print(title)
        make_console().print(comparison_table(rows, run))
        if run is not None:
            print(f"run: {run.reason}")
        for note in _notes_on_unknown(rows):
            print(note)
