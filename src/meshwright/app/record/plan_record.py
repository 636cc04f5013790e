"""`PlanRecord`: the data of a plan, which can be written as JSON."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain

from jax.sharding import PartitionSpec

from meshwright.app.record.parts import (
    Collective,
    FixedSharding,
    Leaf,
    TacticEffect,
    UncutWork,
)
from meshwright.app.record.rebuild import code_of, public_tactics
from meshwright.app.record.step_record import StepRecord, figures_of
from meshwright.errors import PlanError
from meshwright.machine import Machine, Mesh
from meshwright.partitioner.decide import Decided
from meshwright.partitioner.lower import Gather
from meshwright.partitioner.structure.input_roles import find_roles
from meshwright.partitioner.tactics import Tactic
from meshwright.predict.estimate import Estimate


@dataclass(frozen=True)
class PlanRecord(StepRecord):
    """The data of a plan: shardings and collectives of a program, and figures of a step.

    gather: whether a value that several ops need unsharded is all-gathered once for all of
        them, or for each.
    counts: executions per step by kind of collective; each iteration of a loop counts.
    collectives: the collective ops of the device program, in order.
    inputs, outputs: the leaves (arrays) of arguments and results, with their shardings.
    steps: the effect of each tactic.
    whole: ops that are replicated because they have no sharding rule, with the reason.
    uncut: for each mesh axis the work that it does not split, the largest share first.
    donated: paths of the inputs whose memory the step takes for its results; figures and
        `mw.partition(fn, plan)` agree on them.
    decided: the program with its decisions; `None` for a plan that was read from JSON.
    estimate: the simulated step behind `figures`; `None` without figures or program.
    recorded, recorded_code: for a plan that was read from JSON, the tactics that make the
        same decisions again, and Python code of such tactics.
    recorded_parameters: for a plan that was read from JSON, the value of `num_parameters`.
    fixed: shardings in the user's own code that split a value, or forbid a split.
    """

    mesh: Mesh
    gather: Gather
    counts: Mapping[str, int]
    collectives: tuple[Collective, ...]
    inputs: tuple[Leaf, ...]
    outputs: tuple[Leaf, ...]
    steps: tuple[TacticEffect, ...]
    whole: tuple[str, ...]
    fixed: tuple[FixedSharding, ...] = ()
    uncut: tuple[UncutWork, ...] = ()
    donated: tuple[str, ...] = ()
    decided: Decided | None = field(default=None, compare=False, repr=False)
    recorded: tuple[Tactic, ...] = field(default=(), compare=False, repr=False)
    recorded_code: str = field(default="", compare=False, repr=False)
    recorded_parameters: int = field(default=0, compare=False, repr=False)
    estimate: Estimate | None = field(default=None, compare=False, repr=False)

    @property
    def num_parameters(self) -> int:
        """Number of elements of all parameters, unsharded; 0 for no parameters.

        The parameters are found by data dependence when this is first read, since that
        takes time.
        """
        return self.recorded_parameters or self._num_parameters

    @cached_property
    def _num_parameters(self) -> int:
        return 0 if self.decided is None else count_parameters(self.decided)

    @property
    def tactics(self) -> tuple[Tactic, ...]:
        """Tactics that give the same decisions again when applied to the same program.

        A plan that a search found, or that was read from JSON, has a single tactic that
        holds the sharding of each input and op. `Plan.code` writes it as Python.
        """
        if self.decided is not None:
            return public_tactics(self.decided)
        if not self.recorded:
            raise PlanError(
                "this plan was read from JSON, which cannot hold a tactic of your own that "
                "rewrites the program; make the plan again"
            )
        return self.recorded

    @property
    def code(self) -> str:
        """Python code of a list of tactics that rebuild this plan exactly.

        `mw.partition(fn, plan.mesh, [...])` with this list gives every argument, result and
        value in between the sharding that it has here. For a plan that a search found, the
        list is one `mw.pin`, which names each input and op, so that its lines can be read
        and changed.
        """
        decided = self.decided
        return self.recorded_code if decided is None else code_of(decided)

    def spec(self, path: str) -> PartitionSpec:
        """The `PartitionSpec` of the input or output leaf with this path."""
        for leaf in (*self.inputs, *self.outputs):
            if leaf.path == path:
                return leaf.partition_spec
        raise PlanError(
            f"no leaf {path!r}; there are {[leaf.path for leaf in self.inputs][:8]}"
        )

    def kept_bytes(self, donated: Collection[str]) -> int:
        """Bytes of a device's inputs that the plan donates, but that are kept.

        donated: names of the arguments that are donated.
        """
        sizes = self.mesh.spatial.shape
        return sum(
            leaf.num_bytes // math.prod(sizes.get(a, 1) for a in chain(*leaf.spec))
            for leaf in self.inputs
            if leaf.path in self.donated
            and not any(f"{leaf.path}.".startswith(f"{name}.") for name in donated)
        )

    @property
    def layout(self) -> str:
        """The mesh as text."""
        return f"mesh {self.mesh}"

    @property
    def machine(self) -> Machine:
        """The machine of the figures; `PlanError` if the plan was not simulated here."""
        return estimate_of(self).machine


def estimate_of(plan: PlanRecord) -> Estimate:
    """The simulated step of a plan; `PlanError` if the plan was not simulated here."""
    if plan.estimate is None:
        raise PlanError(
            f"a plan read from JSON has the time of a step, "
            f"{figures_of(plan).step_time_s} s, but no timeline; make the plan again "
            "from the program, and name the machine"
        )
    return plan.estimate


def count_parameters(decided: Decided) -> int:
    """Number of elements of a program's parameters, unsharded."""
    inputs = decided.captured.program.inputs
    params = find_roles(decided.work).params
    return sum(math.prod(inputs[i].shape) for i in params)


def program_of(plan: PlanRecord) -> Decided:
    """The partitioned program of a plan, which must not be read from JSON."""
    assert plan.decided is not None, "only a plan with a program can be simulated"
    return plan.decided
