"""The policy that is shipped: trained on generated netlists alone.

`benchmarks/train/train_floorplan_policy.py` trains it.
"""

from functools import cache
from importlib import resources

from meshwright.features.codesign.floorplan.policy.training import (
    read_floorplan_policy,
)
from meshwright.learn.ppo import Policy


@cache
def shipped_policy() -> Policy:
    """The shipped policy."""
    file = (
        resources.files("meshwright.features.codesign.floorplan.policy") / "shipped.npz"
    )
    with resources.as_file(file) as path:
        return read_floorplan_policy(path)
