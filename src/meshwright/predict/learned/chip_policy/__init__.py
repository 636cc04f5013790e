"""A policy that improves a partition of ops over chips: a graph network, trained by PPO.

In: `PolicyInputs`, the ops of a partition as features and edges. Out: for each op the log
probabilities of three moves: to the chip before, none, to the next chip. Begin reading
at `inputs.py`, then `network.py`; `benchmarks/train/train_chip_policy.py` trains it.
"""

from meshwright.predict.learned.chip_policy.chip_policy import (
    ChipPolicy,
    shipped_policy,
)
from meshwright.predict.learned.chip_policy.inputs import PolicyInputs
from meshwright.predict.learned.chip_policy.ppo import Experience, PolicyTrainer

__all__ = [
    "ChipPolicy",
    "Experience",
    "PolicyInputs",
    "PolicyTrainer",
    "shipped_policy",
]
