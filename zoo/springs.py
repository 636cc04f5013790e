"""Particles on springs: a small simulator, and what a net needs to learn it.

Random networks of springs in two dims are let loose; `batches` gives moments of them,
with the noise on their history that keeps a learned simulator from drifting away
(Sanchez-Gonzalez et al., ICML 2020).

Letters: N particles, E edges (a spring is two, one each way), T times, H velocities.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator

DIMS = 2
HISTORY = 5
"""Velocities of the past that a net hears."""

STEP_S = 0.03

STIFFNESS, FRICTION, LENGTH, CORE = 10.0, 0.5, 0.6, 0.5
"""A spring's force by its stretch and by how fast its ends part, its length at rest, and
what keeps it from turning round in no time when its ends meet: lengths are measured from
a point that is so far outside of the plane."""

DENSITY = 2.0
"""Particles by area, at first."""

VELOCITY_SCALE, PULL_SCALE = 1.0, 2.0
"""About the deviations of velocities and of accelerations in these networks."""

NOISE = 3e-4
"""Deviation that a random walk of H velocities reaches, in distance a step."""


class Springs(NamedTuple):
    """Which particles pull which [E], and their positions [T, N, 2] over time."""

    senders: np.ndarray
    receivers: np.ndarray
    positions: np.ndarray


def acceleration(
    position: np.ndarray,
    velocity: np.ndarray,
    senders: np.ndarray,
    receivers: np.ndarray,
) -> np.ndarray:
    """What springs do to particles of mass 1, [N, 2]; in sum it is nothing."""
    apart = position[senders] - position[receivers]
    length = np.sqrt(np.square(apart).sum(axis=-1, keepdims=True) + CORE**2)
    pull = STIFFNESS * (length - LENGTH) * apart / length
    pull += FRICTION * (velocity[senders] - velocity[receivers])
    total = np.zeros_like(position)
    np.add.at(total, receivers, pull)
    return total


def simulate(nodes: int, edges: int, times: int, rng: Generator) -> Springs:
    """A random network let loose: of random places the nearest pairs are springs.

    Second differences of positions are accelerations times STEP_S squared.
    """
    position = rng.uniform(0, (nodes / DENSITY) ** 0.5, (nodes, DIMS))
    velocity = rng.normal(0, VELOCITY_SCALE, (nodes, DIMS))
    a, b = np.triu_indices(nodes, 1)
    distance = np.linalg.norm(position[a] - position[b], axis=-1)
    chosen = np.argsort(distance, kind="stable")[: edges // 2]
    senders = np.concatenate([a[chosen], b[chosen]]).astype(np.int32)
    receivers = np.concatenate([b[chosen], a[chosen]]).astype(np.int32)
    positions = [position]
    for _ in range(times - 1):
        pull = acceleration(positions[-1], velocity, senders, receivers)
        velocity = velocity + STEP_S * pull
        positions.append(positions[-1] + STEP_S * velocity)
    return Springs(senders, receivers, np.stack(positions).astype(np.float32))


def history(positions: Any) -> dict[str, Any]:
    """What a net hears of particles whose last H + 1 positions are [H + 1, N, 2].

    `position` [N, 2], and `velocity` [N, 2 H] in units of its deviation.
    """
    velocity = (positions[1:] - positions[:-1]) / (STEP_S * VELOCITY_SCALE)
    flat = velocity.swapaxes(0, 1).reshape(positions.shape[1], -1)
    return {"position": positions[-1], "velocity": flat}


def batches(
    nodes: int, edges: int, seed: int, networks: int = 32, times: int = 40
) -> Iterator[dict[str, Any]]:
    """Moments without end of some networks, the same for the same seed.

    `nodes` as in `history`, with noise; `edges` with senders and receivers [E]; and the
    `target` [N, 2], the acceleration that also takes back the noise on the velocity.
    """
    rng = np.random.default_rng(seed)
    known = [simulate(nodes, edges, times, rng) for _ in range(networks)]
    while True:
        chosen = known[rng.integers(networks)]
        now = rng.integers(HISTORY, times - 1)
        window = chosen.positions[now - HISTORY : now + 1]
        walk = np.zeros((HISTORY + 1, nodes, DIMS))
        walk[1:] = rng.normal(0, NOISE / HISTORY**0.5, walk[1:].shape).cumsum(axis=0)
        drift = walk.cumsum(axis=0)
        noisy = window + drift.astype(np.float32)
        after = chosen.positions[now + 1] + drift[-1]
        pull = (after - 2 * noisy[-1] + noisy[-2]) / (STEP_S**2 * PULL_SCALE)
        yield {
            "nodes": history(noisy),
            "edges": {"senders": chosen.senders, "receivers": chosen.receivers},
            "target": pull.astype(np.float32),
        }
