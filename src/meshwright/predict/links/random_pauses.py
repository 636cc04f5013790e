"""Seconds that a step waits for groups of devices that pause at random.

A host collects garbage or a network drops a packet, and the devices behind it stop for
some milliseconds. If all groups synchronize once a step, each waits for the pauses of all
others. Pauses are rare and seldom coincide, so that the loss grows with the number of
groups, not with the square root of its logarithm, as the maximum of as many Gaussians
would (Hoefler, Schneider, Lumsdaine, "Characterizing the Influence of System Noise on
Large-Scale Applications by Simulation", SC 2010).
"""

import math

from meshwright.machine import Level, Machine


def waiting_s(step_s: float, level: Level, num_groups: int) -> float:
    """Seconds per step that a group waits for pauses of other groups across a level.

    A group's own pauses are part of `step_s`; a single group waits for nobody.
    """
    return step_s * level.pause_share * (num_groups - 1)


def num_groups(machine: Machine, level: Level) -> int:
    """The number of groups of devices that a level of a machine connects."""
    return math.prod(dim.extent for dim in machine.grid if dim.level == level)
