"""A policy that improves a partition of ops over chips: a graph network, trained by PPO.

In: `PolicyInputs`, the ops of a partition as features and edges. Out: for each op the
probabilities of three moves: to the chip before, none, to the next chip. Begin reading
at `inputs.py`, then `network.py`; `benchmarks/train/train_chip_policy.py` trains it.
"""

from meshwright.features.chips.policy_network.chip_policy import (
    move_probabilities,
    new_policy,
    read_policy,
    shipped_policy,
)
from meshwright.features.chips.policy_network.inputs import PolicyInputs

__all__ = [
    "PolicyInputs",
    "move_probabilities",
    "new_policy",
    "read_policy",
    "shipped_policy",
]
