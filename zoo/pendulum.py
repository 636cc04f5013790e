"""A pendulum that wants to stand: the control task of `zoo.d4pg`, as pure functions.

A point mass on a weightless rod, without friction. The motor holds up only a part of the
weight, so an agent has to learn to swing first. Reward is 1 upright and 0 hanging, as in
the control suite (Tassa et al., 2018), whose pendulum this is but for its numbers.

A state [..., 2] is the angle from upright, in rad, and the velocity, in rad/s; leading
dims are pendulums side by side.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

GRAVITY = 9.81
"""In m/s^2; rod and mass are 1 m and 1 kg."""

TORQUE = 0.4 * GRAVITY
"""The motor's highest torque, in N m: enough to hold the rod 24 degrees off upright."""

STEP_S = 0.05
"""Time between two decisions, and of one Runge-Kutta step."""

EPISODE = 200
"""Decisions of an episode; an agent swings up within a third of them."""

FAST = 6.3
"""Velocity of a pendulum that fell from upright; observations are in units of it."""


def _slope(state: Array, torque: Array) -> Array:
    angle, velocity = state[..., 0], state[..., 1]
    return jnp.stack([velocity, GRAVITY * jnp.sin(angle) + torque], axis=-1)


def advance(state: Array, torque: Array) -> Array:
    """The state one step later, under a constant torque [...] that the motor can give.

    Without torque, energy stays: Runge-Kutta's error is of order `STEP_S` to the fifth.
    """
    torque = jnp.clip(torque, -TORQUE, TORQUE)
    first = _slope(state, torque)
    second = _slope(state + STEP_S / 2 * first, torque)
    third = _slope(state + STEP_S / 2 * second, torque)
    fourth = _slope(state + STEP_S * third, torque)
    return state + STEP_S / 6 * (first + 2 * second + 2 * third + fourth)


def energy(state: Array) -> Array:
    """Kinetic and potential energy [...], in J; zero at the height of the pivot."""
    return state[..., 1] ** 2 / 2 + GRAVITY * jnp.cos(state[..., 0])


def observe(state: Array) -> Array:
    """The observation [..., 3] of a state: position of the mass, and angular velocity."""
    angle, velocity = state[..., 0], state[..., 1]
    return jnp.stack([jnp.cos(angle), jnp.sin(angle), velocity / FAST], axis=-1)


def reward(state: Array) -> Array:
    """Height of the mass [...]: 1 upright, 0 hanging."""
    return (1 + jnp.cos(state[..., 0])) / 2


def hanging(key: Array, count: int) -> Array:
    """`count` pendulums that hang almost still, [count, 2]."""
    push = jax.random.uniform(key, (count, 2), minval=-0.1, maxval=0.1)
    return push + jnp.array([jnp.pi, 0.0])


def anywhere(key: Array, count: int) -> Array:
    """`count` pendulums at rest at any angle, [count, 2]."""
    angle = jax.random.uniform(key, (count,), minval=-jnp.pi, maxval=jnp.pi)
    return jnp.stack([angle, jnp.zeros(count)], axis=-1)


class Experience(NamedTuple):
    """Episodes of T decisions on E pendulums.

    seen [T + 1, E, 3], done [T, E, 1] as a share of the motor's torque, reward [T, E].
    """

    seen: Array
    done: Array
    reward: Array


def play(
    policy: Callable[[Array], Array], begin: Array, key: Array, noise: float
) -> Experience:
    """Whole episodes from `begin` [E, 2], by a policy of observations [E, 3].

    noise: standard deviation of the noise on its actions [E, 1] in [-1, 1].
    """

    def decide(state: Array, key: Array) -> tuple[Array, Experience]:
        seen = observe(state)
        action = policy(seen)
        action = action + noise * jax.random.normal(key, action.shape)
        action = jnp.clip(action, -1, 1)
        state = advance(state, TORQUE * action[:, 0])
        return state, Experience(seen, action, reward(state))

    last, played = jax.lax.scan(decide, begin, jax.random.split(key, EPISODE))
    return played._replace(seen=jnp.concatenate([played.seen, observe(last)[None]]))
