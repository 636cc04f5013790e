"""Seconds of collectives as the TPU compiler's scheduler counts them.

The scheduler hides a collective behind as much computation as it believes that it takes:
bytes over a rate of its own for each kind, which knows neither whether an axis closes to
a ring nor how many groups share a link. The rates were read off the log of libtpu
0.0.50.1 for some thousand collectives on 4, 8 and 16 chips; `cost.collective` tells what
the links can do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from meshwright.machine import Machine


@dataclass(frozen=True, slots=True)
class SchedulerRates:
    """What it holds of one generation.

    link_bytes_per_s: of one link, one way. keeps_own: whether a gather counts what a
        device has already as if it came in. exchange_links: links that an all-to-all
        fills, in halves of one.
    """

    link_bytes_per_s: float
    keeps_own: bool = False
    exchange_links: int = 1


SCHEDULER_RATES: Mapping[str, SchedulerRates] = {
    "v4": SchedulerRates(44.8e9, exchange_links=2),
    "v5e": SchedulerRates(46.67e9, keeps_own=True),
    "v5p": SchedulerRates(93.33e9, exchange_links=2),
    "v6e": SchedulerRates(93.33e9),
}
"""By the name of the topology."""


def scheduler_estimate_s(
    kind: str, num_bytes: float, group: int, machine: Machine
) -> float | None:
    """Seconds of a collective among groups of so many devices.

    num_bytes: of the whole value on one device. None for what the scheduler has no
    time for, such as reduce-scatters, and for machines that it does not know.
    """
    belief = SCHEDULER_RATES.get(machine.topology)
    if belief is None or group < 2:
        return None
    rate, sent = belief.link_bytes_per_s, (group - 1) / group
    if kind == "all_gather":
        return num_bytes * (1 if belief.keeps_own else sent) / (2 * rate)
    if kind == "all_reduce":
        # All chips together reduce along each dim at once, fewer along one.
        dims = sum(dim.extent > 1 for dim in machine.grid)
        return num_bytes / (rate * (dims if group == machine.num_devices else 1))
    if kind == "all_to_all":
        return num_bytes * sent * 2 / (rate * belief.exchange_links)
    return num_bytes / rate if kind == "permute" else None
