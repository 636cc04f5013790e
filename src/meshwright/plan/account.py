"""What a step takes on one device, as the simulation or a compiler tells it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from meshwright.machine import Machine
from meshwright.plan.estimate import Estimate
from meshwright.rules import COLLECTIVES
from meshwright.runtime.backend import Compiled
from meshwright.simulate.layout import Layout
from meshwright.simulate.timeline import COMPUTE, whole_bytes
from meshwright.simulate.unit import Kind, Unit

_HOW = ("exposed", "hidden")
"""How a breakdown tells the seconds of a kind of collective."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """The collectives of one kind in a step, loops multiplied.

    num_bytes: of their whole values on one device: gathered results, reduced operands.
    seconds: of all together; None where that is not told of each.
    """

    runs: int
    num_bytes: int
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Account:
    """A step on one device; None is what is not told.

    peak_bytes: the most that is in memory at once. fits: whether a device has so much.
    flops: a loop's body counts once, as XLA counts.
    collectives: by kind, those that there are.
    compute_s: seconds of all else, by estimate.
    """

    peak_bytes: int
    fits: bool
    flops: float | None
    collectives: Mapping[str, Traffic] | None
    compute_s: float | None


def predicted_account(found: Estimate) -> Account:
    """What the simulation says."""
    return Account(
        found.peak_memory_bytes,
        found.fits,
        unit_flops(found.units),
        _predicted_traffic(found),
        found.breakdown[COMPUTE],
    )


def unit_flops(units: Iterable[Unit]) -> int:
    """Operations of units, recomputation included; a loop's body once, as XLA counts."""
    return sum(u.work.flops + sum(map(unit_flops, u.bodies)) for u in units)


def _predicted_traffic(found: Estimate) -> dict[str, Traffic]:
    moved = unit_traffic(found.units, found.layout)
    told = found.breakdown
    return {
        kind: Traffic(runs, size, sum(told.get(f"{kind} {how}", 0.0) for how in _HOW))
        for kind, (runs, size) in moved.items()
    }


def unit_traffic(
    units: Iterable[Unit], layout: Layout, times: int = 1
) -> dict[str, tuple[int, int]]:
    """Executions and bytes by kind of collective, of units that run so many times."""
    told: dict[str, tuple[int, int]] = {}

    def add(kind: str, runs: int, num_bytes: int) -> None:
        known = told.get(kind, (0, 0))
        told[kind] = known[0] + runs, known[1] + num_bytes

    for unit in units:
        if unit.kind is Kind.COLLECTIVE:
            add(unit.root.kind, times, times * whole_bytes(unit, layout))
        params: Mapping[str, Any] = unit.root.params
        turns = params["length"] if unit.root.kind == "scan" else 1
        for body in unit.bodies:
            for kind, moved in unit_traffic(body, layout, times * turns).items():
                add(kind, *moved)
    return told


def compiled_account(compiled: Compiled, machine: Machine) -> Account:
    """What a compiler says; without a program, it tells memory alone."""
    cycles, clock_hz = compiled.cycles, machine.chip.clock_hz
    return Account(
        compiled.peak_bytes,
        compiled.fits,
        compiled.flops,
        _compiled_traffic(compiled) if compiled.hlo else None,
        None if cycles is None or clock_hz is None else cycles / clock_hz,
    )


def _compiled_traffic(compiled: Compiled) -> dict[str, Traffic]:
    told: dict[str, Traffic] = {}
    for kind in COLLECTIVES:
        mine = [each for each in compiled.transfers if each.kind == kind]
        seconds = [
            each.runs * each.seconds for each in mine if each.seconds is not None
        ]
        if mine:
            told[kind] = Traffic(
                sum(each.runs for each in mine),
                sum(each.runs * each.num_bytes for each in mine),
                sum(seconds) if len(seconds) == len(mine) else None,
            )
    return told
