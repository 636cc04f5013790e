"""Policies of register allocation of either kind, and their files."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from meshwright.errors import PolicyError
from meshwright.features.policies.compiler.allocation import eviction, priority
from meshwright.features.policies.compiler.allocation.correction import PowerCorrection
from meshwright.features.policies.compiler.allocation.eviction import EvictionPolicy
from meshwright.features.policies.compiler.allocation.priority import PriorityPolicy

FORMAT = "meshwright {} policy, version 1"
"""Format that a policy file names; the braces stand for what the policy decides."""

AllocationPolicy = EvictionPolicy | PriorityPolicy

_SHAPES = {"evict": (eviction.INPUTS, 1), "priority": (priority.INPUTS, 1)}
"""Inputs and outputs of the correction, by kind."""


def first_policy(kind: str) -> AllocationPolicy:
    """The policy of a kind without corrections, where training starts."""
    return make_policy(kind, np.zeros(_SHAPES[kind]))


def make_policy(kind: str, weights: NDArray[np.float64]) -> AllocationPolicy:
    """The policy of a kind with these weights; `PolicyError` if their shape is wrong."""
    if weights.shape != _SHAPES[kind]:
        raise PolicyError(
            f"a policy of {kind} has weights of shape {weights.shape}; wanted"
            f" {_SHAPES[kind]}"
        )
    correction = PowerCorrection(weights.astype(np.float32))
    return (EvictionPolicy if kind == "evict" else PriorityPolicy)(correction)


def with_weights(
    policy: AllocationPolicy, weights: NDArray[np.float64]
) -> AllocationPolicy:
    """A policy of the same kind with other weights, in any shape."""
    shape = policy.correction.weights.shape
    correction = PowerCorrection(weights.reshape(shape).astype(np.float32))
    return replace(policy, correction=correction)


def save_policy(policy: AllocationPolicy, path: Path) -> None:
    """Write a policy to a file, all at once."""
    part = path.with_name(path.name + ".part")
    with part.open("wb") as file:
        name = np.array(FORMAT.format(policy.kind))
        np.savez_compressed(file, format=name, weights=policy.correction.weights)
    part.replace(path)
