"""A plan's figures beside those of the real compiler of its machine."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshwright.app.confirm.account import (
    Account,
    Traffic,
    compiled_account,
    predicted_account,
)
from meshwright.app.output.numbers import show_bytes, show_seconds, show_si
from meshwright.app.output.progress import show_progress
from meshwright.errors import PlanError
from meshwright.machine import Machine, load_machine, preset_names
from meshwright.program.ops import COLLECTIVES
from meshwright.run.compilers.confirm import BACKENDS, Step, confirm, find_backend

if TYPE_CHECKING:
    from meshwright.app.plan import Plan

_REDUCTIONS = ("all_reduce", "reduce_scatter")
_NAME, _VALUE, _DIFFERENCE = 26, 18, 12
"""Columns of what is compared, of each value, and of their difference."""


@dataclass(frozen=True, slots=True)
class Confirmation:
    """A step on one device, as predicted and as compiled.

    usable_bytes: what a device gives to programs. compile_s: how long the compiler
    took. hlo: the compiled program; "" where the compiler refused for want of memory.
    """

    machine: str
    num_devices: int
    usable_bytes: float
    predicted: Account
    compiled: Account
    compile_s: float
    hlo: str = field(repr=False)

    def to_json(self) -> dict[str, Any]:
        """All but the compiled program as data for `json.dumps`."""
        return {
            each.name: _plain(getattr(self, each.name))
            for each in dataclasses.fields(self)
            if each.name != "hlo"
        }

    def __str__(self) -> str:
        head = f"{self.machine}, {self.num_devices} devices, compiled in"
        titles = "on each device", "predicted", "compiled", "difference"
        rows = (titles, *_rows(self.predicted, self.compiled, self.usable_bytes))
        lines = (
            f"{name:{_NAME}}{left:>{_VALUE}}{right:>{_VALUE}}{apart:>{_DIFFERENCE}}"
            for name, left, right, apart in rows
        )
        return "\n".join(
            (f"{head} {self.compile_s:.1f} s", *(line.rstrip() for line in lines))
        )


def _plain(value: Any) -> Any:
    return dataclasses.asdict(value) if isinstance(value, Account) else value


# -- as a table ------------------------------------------------------------------------


def _rows(
    predicted: Account, compiled: Account, usable_bytes: float
) -> Iterator[tuple[str, str, str, str]]:
    """What is compared, its two values, and how far the first is from the second."""
    sides = predicted, compiled
    yield _row("memory", show_bytes, [side.peak_bytes for side in sides])
    left, right = ("fits" if side.fits else "DOES NOT FIT" for side in sides)
    yield f"  in {show_bytes(usable_bytes)}", left, right, ""
    yield _row("FLOPs, loop bodies once", _count, [side.flops for side in sides])
    for name, kinds in _groups(sides):
        both = [_together(side, kinds) for side in sides]
        told = [None if t is None else t.num_bytes for t in both]
        times = [f"x{t.runs}" if t and t.runs else "" for t in both]
        name, left, right, apart = _row(name, show_bytes, told)
        yield name, f"{left} {times[0]:>5}", f"{right} {times[1]:>5}", apart
        seconds = [None if t is None else t.seconds for t in both]
        if any(seconds):
            yield _row("  seconds on the links", show_seconds, seconds)
        seconds = [None if t is None else t.believed_s for t in both]
        if None not in seconds and any(seconds):
            yield _row("  seconds to its scheduler", show_seconds, seconds)
    yield _row("seconds of computing", show_seconds, [s.compute_s for s in sides])


def _groups(sides: Sequence[Account]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The kinds that there are; where there are both, reductions also as one.

    Compilers make reduce-scatters of all-reduces and the reverse, to the same effect.
    """
    told = {kind for side in sides for kind in side.collectives or ()}
    yield from ((kind, (kind,)) for kind in COLLECTIVES if kind in told)
    if told.issuperset(_REDUCTIONS):
        yield "all reductions", _REDUCTIONS


def _together(side: Account, kinds: Sequence[str]) -> Traffic | None:
    """The collectives of several kinds as one; None where a side tells of none at all."""
    if side.collectives is None:
        return None
    found = [side.collectives[kind] for kind in kinds if kind in side.collectives]
    return Traffic(
        sum(each.runs for each in found),
        sum(each.num_bytes for each in found),
        _total(each.seconds for each in found),
        _total(each.believed_s for each in found),
    )


def _total(seconds: Iterable[float | None]) -> float | None:
    """The sum; None where one is not told."""
    told = list(seconds)
    known = [s for s in told if s is not None]
    return sum(known) if len(known) == len(told) else None


def _row(
    name: str, show_fn: Callable[[float], str], values: Sequence[float | None]
) -> tuple[str, str, str, str]:
    left, right = ("not told" if v is None else show_fn(v) for v in values)
    predicted, compiled = values
    apart = ""
    if predicted is not None and compiled:
        apart = f"{100 * (predicted / compiled - 1):+.1f} %"
    return name, left, right, apart


def _count(value: float) -> str:
    return show_si(value, "").rstrip()


# -- asking ----------------------------------------------------------------------------


def place_plan(plan: Plan, machine: Machine | str, donate_state: bool) -> Plan:
    """The plan on the machine that is meant, whose compiler is here.

    Raises `CompilerError`, `MachineError` and `PlanError` as `Plan.confirm` does.
    """
    if plan.decided is None:
        raise PlanError("a plan read from JSON has no program to compile")
    if not isinstance(machine, Machine | str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise PlanError(f"machine is {machine!r}; wanted a machine or the name of one")
    if isinstance(machine, str) and machine in BACKENDS:
        found = plan.estimate
        if found is None or found.machine.compiler != machine:
            raise PlanError(_which(plan, machine))
        find_backend(found.machine)
        return plan
    if isinstance(machine, str):
        machine = load_machine(machine, plan.mesh.num_devices)
    find_backend(machine)
    return plan.on(machine, donate_state=donate_state)


def _which(plan: Plan, compiler: str) -> str:
    """That a plan names no machine of a kind, and which there are."""
    known = [n for n in preset_names() if load_machine(n, None).compiler == compiler]
    now = "no machine" if plan.figures is None else plan.figures.machine
    return (
        f"confirm({compiler!r}) wants a plan on a {compiler.upper()}, this one is on "
        f"{now}; give one of {', '.join(known)}, such as plan.confirm({known[-1]!r})"
    )


def confirm_placed(
    plan: Plan, full: bool, timeout_s: float, folder: Path | None
) -> Confirmation:
    """Compile a plan for the machine that it is on, and compare."""
    decided, found = plan.decided, plan.estimate
    assert decided is not None, "a plan on a machine has its program"
    assert found is not None, "place_plan put it on a machine"
    machine = found.machine
    step = Step(decided.lowered, decided.captured.avals, found.donated)
    with show_progress(f"compiling for {machine}"):
        compiled = confirm(step, machine, full, timeout_s, folder)
    return Confirmation(
        machine=machine.name,
        num_devices=machine.num_devices,
        usable_bytes=machine.chip.usable_bytes,
        predicted=predicted_account(found),
        compiled=compiled_account(compiled, machine),
        compile_s=compiled.compile_s,
        hlo=compiled.hlo,
    )
