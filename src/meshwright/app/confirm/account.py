"""Memory, FLOPs and collectives of a step on one device, in one form for two sources.

The sources are the simulation and the machine's real compiler.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from meshwright.machine import Machine
from meshwright.predict.compilers.model.fusion import Fusion, FusionKind
from meshwright.predict.compilers.model.kernels import collective_bytes
from meshwright.predict.estimate import Estimate
from meshwright.predict.links.scheduler_estimate import scheduler_estimate_s
from meshwright.predict.simulate.timeline import COMPUTE
from meshwright.program.analysis.executions import num_iterations
from meshwright.program.ops import COLLECTIVES
from meshwright.run.compilers.backend import Compiled

_OVERLAP = ("exposed", "hidden")
"""Suffixes of the two entries that a simulated time breakdown has per kind of
collective.
"""


@dataclass(frozen=True, slots=True)
class CollectiveTotals:
    """Totals over all collectives of one kind in a step; each iteration of a loop counts.

    runs: number of executions.
    num_bytes: sum of the sizes on one device. The size of an all-gather is that of its
        result, the size of a reduction that of its operand.
    seconds: time on the links; `None` if it is unknown for one of the collectives.
    scheduler_s: seconds as the compiler's scheduler estimates them; `None` if unknown.
    """

    runs: int
    num_bytes: int
    seconds: float | None = None
    scheduler_s: float | None = None


@dataclass(frozen=True, slots=True)
class Account:
    """The figures of a step on one device; `None` stands for an unknown figure.

    peak_bytes: peak memory. fits: whether a device has that much.
    flops: floating-point operations; the body of a loop counts once, as in XLA's cost
        analysis.
    collectives: totals by kind of collective, without the kinds that do not occur.
    compute_s: estimated seconds of all kernels except collectives.
    """

    peak_bytes: int
    fits: bool
    flops: float | None
    collectives: Mapping[str, CollectiveTotals] | None
    compute_s: float | None


def predicted_account(estimate: Estimate) -> Account:
    """The figures of a simulated step on one device."""
    return Account(
        estimate.peak_memory_bytes,
        estimate.fits,
        fusion_flops(estimate.fusions),
        collective_totals(estimate),
        estimate.breakdown[COMPUTE],
    )


def fusion_flops(fusions: Iterable[Fusion]) -> int:
    """FLOPs of fusions, recomputation included; the body of a loop counts once."""
    return sum(f.work.flops + sum(map(fusion_flops, f.bodies)) for f in fusions)


def collective_totals(estimate: Estimate) -> dict[str, CollectiveTotals]:
    """Totals of the collectives of a simulated step, by kind of collective."""
    sizes, breakdown = dict(estimate.mesh.sizes), estimate.breakdown
    totals: dict[str, CollectiveTotals] = {}
    for fusion, runs in _collectives(estimate.fusions):
        kind, num_bytes = fusion.root.kind, collective_bytes(fusion, estimate.layouts)
        params: Mapping[str, Any] = fusion.root.params
        group = math.prod(sizes[axis] for axis in params["axes"])
        each_s = scheduler_estimate_s(kind, num_bytes, group, estimate.machine)
        known = totals.get(kind, CollectiveTotals(0, 0, 0.0, 0.0))
        totals[kind] = CollectiveTotals(
            known.runs + runs,
            known.num_bytes + runs * num_bytes,
            sum(breakdown.get(f"{kind} {part}", 0.0) for part in _OVERLAP),
            None
            if each_s is None or known.scheduler_s is None
            else known.scheduler_s + runs * each_s,
        )
    return totals


def _collectives(
    fusions: Iterable[Fusion], runs: int = 1
) -> Iterator[tuple[Fusion, int]]:
    """Pairs of each collective and the number of times that a step executes it.

    A collective in a loop counts once per iteration.
    """
    for fusion in fusions:
        if fusion.kind is FusionKind.COLLECTIVE:
            yield fusion, runs
        for body in fusion.bodies:
            yield from _collectives(body, runs * num_iterations(fusion.root))


def compiled_account(compiled: Compiled, machine: Machine) -> Account:
    """The account of a compiled step.

    It has the memory only if the compiler gave no program.
    """
    cycles, clock_hz = compiled.cycles, machine.chip.clock_hz
    return Account(
        compiled.peak_bytes,
        compiled.fits,
        compiled.flops,
        _compiled_collectives(compiled) if compiled.hlo else None,
        None if cycles is None or clock_hz is None else cycles / clock_hz,
    )


def _compiled_collectives(compiled: Compiled) -> dict[str, CollectiveTotals]:
    totals: dict[str, CollectiveTotals] = {}
    for kind in COLLECTIVES:
        transfers = [each for each in compiled.collectives if each.kind == kind]
        if transfers:
            totals[kind] = CollectiveTotals(
                sum(each.runs for each in transfers),
                sum(each.runs * each.num_bytes for each in transfers),
                scheduler_s=sum_known(
                    None if each.seconds is None else each.runs * each.seconds
                    for each in transfers
                ),
            )
    return totals


def sum_known(seconds: Iterable[float | None]) -> float | None:
    """The sum of the numbers; `None` if one of them is `None`."""
    values = list(seconds)
    known = [s for s in values if s is not None]
    return sum(known) if len(known) == len(values) else None
