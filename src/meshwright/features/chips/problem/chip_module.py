"""A multi-chip module: chips in a line, their memory, and links between neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from meshwright.errors import ChipsError
from meshwright.machine import Kind, Machine, load_machine

MOST_CHIPS = 62
"""Largest number of chips of a module: a set of chips is a signed 64-bit integer."""


@dataclass(frozen=True, slots=True)
class ChipModule:
    """Chips in a line; a value for a distant chip passes every link in between.

    memory_bytes: memory of one chip.
    link_bytes_per_s, latency_s: rate and latency of each link between neighbours, in
        the direction in which data flows.
    """

    num_chips: int
    memory_bytes: float
    link_bytes_per_s: float
    latency_s: float = 0.0
    name: str = "module"

    def __post_init__(self) -> None:
        if not 1 <= self.num_chips <= MOST_CHIPS:
            raise ChipsError(
                f"a module of {self.num_chips} chips: give one of 1 to {MOST_CHIPS}"
            )
        if not (self.memory_bytes > 0 and self.link_bytes_per_s > 0):
            raise ChipsError(
                f"{self}: memory_bytes and link_bytes_per_s must be above 0"
            )


def module_machine(machine: Machine | str | Path, chips: int | None = None) -> Machine:
    """The machine of a module with all its chips, or with `chips` of them.

    machine: a machine, or its name or file. A name or file alone stands for as many
        chips as its only level of links joins.
    """
    if isinstance(machine, Machine):
        return machine
    if chips is not None:
        return load_machine(machine, None, chips)
    one = load_machine(machine)
    if len(one.levels) != 1:
        raise ChipsError(
            f"{one.name} has {len(one.levels)} levels of links, so its size is open: say "
            "how many chips (--chips, or mw.machine(name, chips=8))"
        )
    return load_machine(machine, one.levels[0].largest)


def module_of(machine: Machine) -> ChipModule:
    """The devices of a machine as a line, along the links of its inner level.

    Devices of a grid are numbered row by row, forth and back, so that neighbours share
    a link.
    """
    count, usable = machine.num_devices, machine.chip.usable_bytes
    if count == 1:
        return ChipModule(1, usable, 1.0, name=machine.name)
    inner = machine.levels[0]
    if count > inner.largest or inner.kind is not Kind.TORUS:
        raise ChipsError(
            f"{machine} is not one line of chips: wanted a machine whose inner level is "
            f"a torus that joins all its devices, such as mcm-36; its inner level "
            f"{inner.name!r} is a {inner.kind.value} of at most {inner.largest}"
        )
    rate, latency_s = inner.link_bytes_per_s, inner.latency_s
    return ChipModule(count, usable, rate, latency_s, machine.name)
