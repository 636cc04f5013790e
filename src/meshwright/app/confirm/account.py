"""What a step takes on one device, as the simulation or a compiler tells it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from meshwright.machine import Machine
from meshwright.predict.compilers.xla.fusion import Fusion, FusionKind
from meshwright.predict.compilers.xla.kernels import whole_bytes
from meshwright.predict.estimate import Estimate
from meshwright.predict.links.scheduler_estimate import believed_s
from meshwright.predict.simulate.timeline import COMPUTE
from meshwright.program.ops import COLLECTIVES
from meshwright.run.compilers.backend import Compiled

_HOW = ("exposed", "hidden")
"""How a breakdown tells the seconds of a kind of collective."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """The collectives of one kind in a step, loops multiplied.

    num_bytes: of their whole values on one device: gathered results, reduced operands.
    seconds: of all together by what the links do; None where that is not told of each.
    believed_s: of all together as the compiler's scheduler counts them; None likewise.
    """

    runs: int
    num_bytes: int
    seconds: float | None = None
    believed_s: float | None = None


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
        unit_flops(found.fusions),
        _predicted_traffic(found),
        found.breakdown[COMPUTE],
    )


def unit_flops(units: Iterable[Fusion]) -> int:
    """Operations of units, recomputation included; a loop's body once, as XLA counts."""
    return sum(u.work.flops + sum(map(unit_flops, u.bodies)) for u in units)


def _predicted_traffic(found: Estimate) -> dict[str, Traffic]:
    told = found.breakdown
    return {
        kind: replace(
            moved, seconds=sum(told.get(f"{kind} {how}", 0.0) for how in _HOW)
        )
        for kind, moved in unit_traffic(found).items()
    }


def unit_traffic(found: Estimate) -> dict[str, Traffic]:
    """The collectives of a step by kind, loops multiplied, without their seconds."""
    sizes = dict(found.mesh.sizes)
    told: dict[str, Traffic] = {}
    for unit, runs in _collectives(found.fusions):
        kind, num_bytes = unit.root.kind, whole_bytes(unit, found.layout)
        params: Mapping[str, Any] = unit.root.params
        group = math.prod(sizes[axis] for axis in params["axes"])
        each_s = believed_s(kind, num_bytes, group, found.machine)
        known = told.get(kind, Traffic(0, 0, believed_s=0.0))
        told[kind] = Traffic(
            known.runs + runs,
            known.num_bytes + runs * num_bytes,
            believed_s=None
            if each_s is None or known.believed_s is None
            else known.believed_s + runs * each_s,
        )
    return told


def _collectives(
    units: Iterable[Fusion], runs: int = 1
) -> Iterator[tuple[Fusion, int]]:
    """Units that communicate, those of loops as often as they run."""
    for unit in units:
        if unit.kind is FusionKind.COLLECTIVE:
            yield unit, runs
        params: Mapping[str, Any] = unit.root.params
        turns = params["length"] if unit.root.kind == "scan" else 1
        for body in unit.bodies:
            yield from _collectives(body, runs * turns)


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
                believed_s=sum(seconds) if len(seconds) == len(mine) else None,
            )
    return told
