"""Seconds that a step waits for groups of devices that stop at times of their own.

A host collects garbage, a network drops a packet, and the devices behind them stop for
some milliseconds. Where all groups meet once a step, each waits for the pauses of all
others. These are rare, so that hardly two fall together, and what a step loses grows as
the number of groups, not as the maximum of as many Gaussians would, as its logarithm's
root (Hoefler, Schneider, Lumsdaine, "Characterizing the Influence of System Noise on
Large-Scale Applications by Simulation", SC 2010).
"""

from __future__ import annotations

import math

from meshwright.machine import Machine
from meshwright.machine.fabric import Level


def waiting_s(step_s: float, level: Level, num_groups: int) -> float:
    """What pauses of the other groups add to a step that meets across a level.

    Those of a group's own are part of `step_s`; nothing where there is one group.
    """
    return step_s * level.pause_share * (num_groups - 1)


def num_groups(machine: Machine, level: Level) -> int:
    """Groups of devices that a level joins in a machine."""
    return math.prod(dim.extent for dim in machine.grid if dim.level == level)
