"""Seconds of collectives as the TPU compiler's latency-hiding scheduler estimates them.

The scheduler hides a collective behind as much computation as its estimate says: bytes
over a rate for each kind, regardless of whether an axis closes to a ring and of how many
groups share a link. The rates were read off the log of libtpu 0.0.50.1 for about a
thousand collectives on 4, 8 and 16 chips. The time of a step uses `collective.py` instead.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from meshwright.machine import Machine


@dataclass(frozen=True, slots=True)
class SchedulerRates:
    """The scheduler's rates for one TPU generation.

    link_bytes_per_s: rate of one link in one direction.
    counts_own_share: whether the bytes of an all-gather include the device's own share.
    exchange_links: number of half links that an all-to-all uses.
    """

    link_bytes_per_s: float
    counts_own_share: bool = False
    exchange_links: int = 1


SCHEDULER_RATES: Mapping[str, SchedulerRates] = {
    "v4": SchedulerRates(44.8e9, exchange_links=2),
    "v5e": SchedulerRates(46.67e9, counts_own_share=True),
    "v5p": SchedulerRates(93.33e9, exchange_links=2),
    "v6e": SchedulerRates(93.33e9),
}
"""Rates by the compiler's name of the topology."""


def scheduler_estimate_s(
    kind: str, num_bytes: float, group: int, machine: Machine
) -> float | None:
    """Seconds of a collective among `group` devices, as the scheduler estimates it.

    num_bytes: bytes of the whole value on one device.
    `None` for kinds that the scheduler does not estimate, such as reduce-scatters, and
    for machines without a TPU topology.
    """
    rates = SCHEDULER_RATES.get(machine.topology)
    if rates is None or group < 2:
        return None
    rate, sent = rates.link_bytes_per_s, (group - 1) / group
    if kind == "all_gather":
        return num_bytes * (1 if rates.counts_own_share else sent) / (2 * rate)
    if kind == "all_reduce":
        # All chips together reduce along every dim at once, fewer chips along one dim.
        dims = sum(dim.extent > 1 for dim in machine.grid)
        return num_bytes / (rate * (dims if group == machine.num_devices else 1))
    if kind == "all_to_all":
        return num_bytes * sent * 2 / (rate * rates.exchange_links)
    return num_bytes / rate if kind == "permute" else None
