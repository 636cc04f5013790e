"""Predicted figures of a step compared with those of the machine's real compiler."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from meshwright.app.confirm.account import (
    Account,
    CollectiveTotals,
    compiled_account,
    predicted_account,
    sum_known,
)
from meshwright.app.output.numbers import show_count, show_seconds
from meshwright.app.output.progress import show_progress
from meshwright.app.output.table import columns
from meshwright.app.record.plan_record import PlanRecord, program_of
from meshwright.errors import PlanError
from meshwright.machine import Machine, load_machine, preset_names
from meshwright.machine.memory_size import show_bytes
from meshwright.partitioner.decide import Decided
from meshwright.predict.estimate import Estimate
from meshwright.program.ops import COLLECTIVES
from meshwright.run.compilers.confirm import BACKENDS, DeviceStep, confirm, find_backend

_REDUCTIONS = ("all_reduce", "reduce_scatter")
_WIDTHS = "26", ">18", ">18", ">12"
"""Widths of columns: the figure's name, each of the two values, and their difference."""


@dataclass(frozen=True, slots=True)
class Confirmation:
    """The figures of a step on one device: as predicted, and as the real compiler reports.

    usable_bytes: device memory that programs can use.
    compile_s: seconds that the compiler took.
    hlo: text of the compiled program; "" if the compiler stopped for lack of device memory.
    """

    machine: str
    num_devices: int
    usable_bytes: float
    predicted: Account
    compiled: Account
    compile_s: float
    hlo: str = field(repr=False)

    def to_json(self) -> dict[str, Any]:
        """The figures as plain data for `json.dumps`, without the compiled program."""
        fields = asdict(self)
        del fields["hlo"]
        return fields

    def __str__(self) -> str:
        head = f"{self.machine}, {self.num_devices} devices, compiled in"
        titles = "on each device", "predicted", "compiled", "difference"
        rows = (titles, *_rows(self.predicted, self.compiled, self.usable_bytes))
        return "\n".join((f"{head} {self.compile_s:.1f} s", *columns(rows, _WIDTHS)))


# -- as a table ------------------------------------------------------------------------


def _rows(
    predicted: Account, compiled: Account, usable_bytes: float
) -> Iterator[tuple[str, str, str, str]]:
    """Rows of the printed table: name, predicted value, compiled value, difference."""
    sides = predicted, compiled
    yield _row("memory", show_bytes, [side.peak_bytes for side in sides])
    left, right = ("fits" if side.fits else "DOES NOT FIT" for side in sides)
    yield f"  in {show_bytes(usable_bytes)}", left, right, ""
    yield _row("FLOPs, loop bodies once", show_count, [side.flops for side in sides])
    for name, kinds in _groups(sides):
        totals = [_total_of(side, kinds) for side in sides]
        sizes = [None if t is None else t.num_bytes for t in totals]
        runs = [f"x{t.runs}" if t and t.runs else "" for t in totals]
        name, left, right, difference = _row(name, show_bytes, sizes)
        yield name, f"{left} {runs[0]:>5}", f"{right} {runs[1]:>5}", difference
        seconds = [None if t is None else t.seconds for t in totals]
        if any(seconds):
            yield _row("  seconds on the links", show_seconds, seconds)
        seconds = [None if t is None else t.scheduler_s for t in totals]
        if None not in seconds and any(seconds):
            yield _row("  scheduler's estimate", show_seconds, seconds)
    yield _row("compute seconds", show_seconds, [s.compute_s for s in sides])


def _groups(sides: Sequence[Account]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Titles and kinds of the collectives that the predicted or the compiled step has.

    If all-reduces and reduce-scatters both occur, one more group compares their sum, since
    compilers turn one into the other without a change of the effect.
    """
    kinds = {kind for side in sides for kind in side.collectives or ()}
    yield from ((kind, (kind,)) for kind in COLLECTIVES if kind in kinds)
    if kinds.issuperset(_REDUCTIONS):
        yield "all reductions", _REDUCTIONS


def _total_of(side: Account, kinds: Sequence[str]) -> CollectiveTotals | None:
    """The totals over several kinds of collectives.

    `None` if the account has no information on collectives.
    """
    if side.collectives is None:
        return None
    totals = [side.collectives[kind] for kind in kinds if kind in side.collectives]
    return CollectiveTotals(
        sum(each.runs for each in totals),
        sum(each.num_bytes for each in totals),
        sum_known(each.seconds for each in totals),
        sum_known(each.scheduler_s for each in totals),
    )


def _row(
    name: str, show_fn: Callable[[float], str], values: Sequence[float | None]
) -> tuple[str, str, str, str]:
    left, right = ("unknown" if v is None else show_fn(v) for v in values)
    predicted, compiled = values
    difference = ""
    if predicted is not None and compiled:
        difference = f"{100 * (predicted / compiled - 1):+.1f} %"
    return name, left, right, difference


# -- compiling -------------------------------------------------------------------------


def machine_to_place_on(
    machine: Machine | str, now: Machine | None, num_devices: int
) -> Machine | None:
    """The machine for which a plan must be simulated first, so that it can be compiled.

    `None` if `machine` is "tpu" or "gpu", which mean the machine that the plan already has.
    now: that machine, if there is one. num_devices: number of the plan's devices.
    Raises `CompilerError` if the machine's compiler is not installed, and `MachineError`
    and `PlanError` like `Plan.confirm`.
    """
    if not isinstance(machine, Machine | str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise PlanError(f"machine is {machine!r}; wanted a machine or the name of one")
    if isinstance(machine, str) and machine in BACKENDS:
        if now is None or now.compiler != machine:
            known = [
                n for n in preset_names() if load_machine(n, None).compiler == machine
            ]
            raise PlanError(
                f"confirm({machine!r}) wants a plan on a {machine.upper()}, this one is "
                f"on {'no machine' if now is None else now.name}; give one of "
                f"{', '.join(known)}, such as plan.confirm({known[-1]!r})"
            )
        find_backend(now)
        return None
    if isinstance(machine, str):
        machine = load_machine(machine, num_devices)
    find_backend(machine)
    return machine


def confirm_placed(
    plan: PlanRecord, full: bool, timeout_s: float, folder: Path | None
) -> Confirmation:
    """Predicted and compiled figures of a plan on its machine.

    full: let the compiler generate code, too. folder: a folder in which the compiler's own
        files are kept.
    """
    assert plan.estimate is not None, "the plan was placed on a machine"
    return confirm_simulated(program_of(plan), plan.estimate, full, timeout_s, folder)


def confirm_simulated(
    decided: Decided,
    estimate: Estimate,
    full: bool,
    timeout_s: float,
    folder: Path | None,
) -> Confirmation:
    """Predicted and compiled figures of a simulated program."""
    machine = estimate.machine
    step = DeviceStep(decided.lowered, decided.captured.avals, estimate.donated)
    with show_progress(f"compiling for {machine}"):
        compiled = confirm(step, machine, full, timeout_s, folder)
    return Confirmation(
        machine=machine.name,
        num_devices=machine.num_devices,
        usable_bytes=machine.chip.usable_bytes,
        predicted=predicted_account(estimate),
        compiled=compiled_account(compiled, machine),
        compile_s=compiled.compile_s,
        hlo=compiled.hlo,
    )
