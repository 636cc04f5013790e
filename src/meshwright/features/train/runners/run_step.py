"""`RunnerStep`: the train step on the devices of a runner.

States, batches and metrics are opaque handles to the training loop: it gets them from a
runner and gives them back to it.
"""

from dataclasses import dataclass
from typing import Any

from meshwright.app.partitioned import Partitioned
from meshwright.app.plan import Plan
from meshwright.features.cluster.client import Slice
from meshwright.features.cluster.cluster_step import ClusterStep
from meshwright.machine import Mesh

State = Any
"""Handle to a training state that stays on the devices."""

Batch = Any
"""Handle to a batch on the devices."""

Metrics = Any
"""Handle to the metrics of a step, which the devices may still be computing."""


@dataclass(frozen=True, slots=True, eq=False)
class RunnerStep:
    """A partitioned function of (state, batch), with its plan.

    call: the function, which returns handles at once. on: the devices on which it runs.
    state_shapes: types of the state.
    """

    call: Partitioned | ClusterStep
    on: Mesh | Slice
    plan: Plan
    state_shapes: Any
