"""Seconds of a transfer from one group of devices to another, such as between stages.

The groups are ranges of devices, which are numbered group by group of each level. A
transfer is priced as a permutation along the outermost level of links between them: NVLink
between groups of one node, the network between groups of different nodes.
"""

from dataclasses import replace

from meshwright.machine import Dim, Kind, Machine
from meshwright.machine.placement import Segment
from meshwright.predict.links.collective import permute_s


def transfer_s(
    num_bytes: float, senders: range, receivers: range, machine: Machine
) -> float:
    """Seconds until each of the receivers has its part of a value from the senders.

    num_bytes: bytes that the busiest device sends or receives.
    """
    dim = _separating(senders, receivers, machine)
    if dim is None or not num_bytes:
        return 0.0
    segment = _segment(dim, min(len(senders), len(receivers)))
    return permute_s(num_bytes, [segment])


def busiest_bytes(received: float, num_senders: int, num_receivers: int) -> float:
    """Bytes of the device that sends or receives most, if all senders send alike.

    received: bytes that each receiver receives.
    """
    return received * max(1.0, num_receivers / num_senders)


def _separating(senders: range, receivers: range, machine: Machine) -> Dim | None:
    """A dim of the outermost level of which the groups are on different sides.

    `None` if both are the same device.
    """
    ends = (senders[0], receivers[0]), (senders[-1], receivers[-1])
    for dim in machine.grid:
        if any(one // dim.num_inner != other // dim.num_inner for one, other in ends):
            return dim
    return None


def _segment(dim: Dim, num_devices: int) -> Segment:
    """The links from each of a number of devices to another device beyond a dim.

    At a switch, only devices of this number share the links of their group. On a torus
    the devices are a compact block, and a link carries the data of all along its shortest
    side.
    """
    if dim.level.kind is Kind.SWITCH:
        busy = min(dim.num_inner, num_devices)
        return Segment(replace(dim, num_inner=busy), 2, 1)
    block = dim.level.shape(num_devices)
    return Segment(dim, 2, min(block or (1,)))
