"""The placement of a mesh on which all collectives of a plan together take least time."""

from collections.abc import Iterable
from dataclasses import dataclass

from meshwright.machine import Machine, Mesh
from meshwright.machine.placement import (
    Placement,
    place_mesh,
    placed_by,
    placement_matrices,
)
from meshwright.predict.links.collective import COLLECTIVE_S

_MOST_CANDIDATES = 500
"""Matrices that are priced; meshes with more keep the placement by bandwidth."""

_LEAST_GAIN = 1e-3
"""Share of the seconds below which another placement is not worth a change."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """Collectives of one kind over the same mesh axes.

    num_bytes: bytes of one execution, as in `COLLECTIVE_S`. runs: executions in a step.
    """

    kind: str
    axes: tuple[str, ...]
    num_bytes: float
    runs: float = 1


def best_placement(
    collectives: Iterable[Traffic], mesh: Mesh, machine: Machine
) -> Placement:
    """The placement on which the collectives take the least seconds together.

    It is never slower by `traffic_s` than `place_mesh`, which is kept if no other is
    faster by a thousandth. Raises `MachineError` if mesh and machine have different
    numbers of devices.
    """
    usual = place_mesh(mesh, machine)
    candidates = placement_matrices(mesh, machine)
    if not 1 < len(candidates) <= _MOST_CANDIDATES:
        return usual
    totals = total_traffic(collectives)
    best, least_s = usual, (1 - _LEAST_GAIN) * traffic_s(totals, usual)
    for matrix in candidates:
        placement = placed_by(matrix, mesh, machine)
        seconds = traffic_s(totals, placement)
        if seconds < least_s:
            best, least_s = placement, seconds
    return best


def traffic_s(collectives: Iterable[Traffic], placement: Placement) -> float:
    """Seconds of collectives one after another."""
    return sum(
        each.runs * COLLECTIVE_S[each.kind](each.num_bytes, placement.of(each.axes))
        for each in collectives
    )


def total_traffic(collectives: Iterable[Traffic]) -> list[Traffic]:
    """One entry for all collectives of the same kind and axes, with their mean bytes.

    It takes as many seconds as they do, since prices are affine in the bytes.
    """
    totals: dict[tuple[str, tuple[str, ...]], tuple[float, float]] = {}
    for each in collectives:
        runs, num_bytes = totals.get((each.kind, each.axes), (0.0, 0.0))
        total = runs + each.runs, num_bytes + each.runs * each.num_bytes
        totals[each.kind, each.axes] = total
    return [
        Traffic(kind, axes, num_bytes / runs, runs)
        for (kind, axes), (runs, num_bytes) in totals.items()
        if runs
    ]
