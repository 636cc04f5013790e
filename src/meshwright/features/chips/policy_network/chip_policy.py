"""Policies of the network of chips, and the one that is shipped."""

from __future__ import annotations

from functools import cache
from importlib import resources
from pathlib import Path

import jax
import numpy as np
from numpy.typing import NDArray

from meshwright.features.chips.policy_network.inputs import PolicyInputs
from meshwright.features.chips.policy_network.network import (
    init_policy,
    move_log_probabilities,
)
from meshwright.learn.ppo import Policy


def new_policy(seed: int) -> Policy:
    """An untrained policy. Its moves have the probabilities of its inputs' prior."""
    return Policy.new(move_log_probabilities, init_policy(jax.random.key(seed)))


def read_policy(path: Path) -> Policy:
    """The policy in a file that `Policy.save` wrote."""
    return new_policy(0).restored(path)


@cache
def shipped_policy() -> Policy:
    """The shipped policy: the untrained prior, on which training has not improved yet."""
    file = resources.files("meshwright.features.chips.policy_network") / "shipped.npz"
    with resources.as_file(file) as path:
        return read_policy(path)


def move_probabilities(policy: Policy, inputs: PolicyInputs) -> NDArray[np.float64]:
    """Probabilities [N, 3] that an op moves to the chip before, stays, or moves on."""
    log_p = policy.log_probabilities(*inputs.padded())
    return np.exp(log_p.astype(np.float64))[: len(inputs.features)]
