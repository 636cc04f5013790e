"""`PlanRecord` and its parts: the data of a plan, which can be written as JSON."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from jax.sharding import PartitionSpec

from meshwright.app.record.rebuild import code_of, public_tactics
from meshwright.errors import PlanError
from meshwright.machine import Mesh
from meshwright.partitioner.decide import Decided
from meshwright.partitioner.lower import Gather
from meshwright.partitioner.structure.input_roles import find_roles
from meshwright.partitioner.tactics import (
    Tactic,
)
from meshwright.predict.figures import Figures
from meshwright.program.ir import Sharding, itemsize_bytes, show_type

if TYPE_CHECKING:
    from meshwright.planner.candidates.search_result import SearchResult
    from meshwright.predict.estimate import Estimate


@dataclass(frozen=True, slots=True)
class Collective:
    """A collective op of the device program, and the reason for it.

    bytes: size on one device of the operand or the result, whichever is larger.
    executions: number of executions per step; each iteration of a loop counts.
    source: `file:line` of the user's code.
    value: type of the operand on one device.
    reason: one sentence. chain: the decisions that led to the collective, the nearest
        first.
    """

    kind: str
    axes: tuple[str, ...]
    bytes: int
    executions: int
    reason: str
    source: str
    value: str
    chain: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Leaf:
    """An input or output array of the program (a pytree leaf) with its sharding.

    spec: for each dim the mesh axes that split it, major to minor.
    """

    path: str
    shape: tuple[int, ...]
    dtype: str
    spec: tuple[tuple[str, ...], ...]

    @property
    def partition_spec(self) -> PartitionSpec:
        """The sharding as JAX's `PartitionSpec`."""
        return PartitionSpec(*(a[0] if len(a) == 1 else (a or None) for a in self.spec))

    @property
    def num_bytes(self) -> int:
        """Bytes of the whole array, before it is sharded."""
        return math.prod(self.shape) * itemsize_bytes(self.dtype)

    def __str__(self) -> str:
        return f"{self.path}: {show_type(self.shape, self.dtype)} {Sharding(self.spec)}"


@dataclass(frozen=True, slots=True)
class TacticEffect:
    """The effect of one tactic and of the propagation that follows it.

    cut: inputs that it sharded, with their shardings.
    refused: requests of the tactic that were not possible, with the reason.
    conflicts: messages about ops of which two dims asked for the same axis.
    indivisible: messages about dims at which propagation stopped, because the number of
        parts does not divide their size or does not line up with it.
    counts: executions of each kind of collective per step, after this tactic.
    """

    tactic: str
    cut: tuple[str, ...]
    refused: tuple[str, ...]
    conflicts: tuple[str, ...]
    indivisible: tuple[str, ...]
    counts: Mapping[str, int]

    @property
    def is_idle(self) -> bool:
        """Whether the tactic left no sharding, message or collective.

        It sharded no input, no request was refused, and the program has no collective after
        it.
        """
        messages = (self.cut, self.refused, self.conflicts, self.indivisible)
        return not any(messages) and not any(self.counts.values())


@dataclass(frozen=True, slots=True)
class FixedSharding:
    """A sharding that the user's own code sets, which no tactic can change.

    kind: "with_sharding_constraint" or "shard_map". source: `file:line` of the code.
    value: type of the first result.
    spec: for each dim of the first result the mesh axes that split it.
    whole: mesh axes that the code keeps from splitting the result.
    """

    kind: str
    source: str
    value: str
    spec: tuple[tuple[str, ...], ...]
    whole: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class UncutWork:
    """Ops of one kind and source line that a mesh axis does not split.

    All devices along the axis repeat these ops.
    share: FLOPs of these ops as a share of all FLOPs of the program.
    why: the reason as text, with relevant sizes.
    """

    axis: str
    kind: str
    source: str
    share: float
    why: str


@dataclass(frozen=True)
class PlanRecord:
    """The data of a plan: shardings and collectives of a program, and figures of a step.

    gather: whether a value that several ops need unsharded is all-gathered once for all of
        them, or for each.
    counts: executions per step by kind of collective; each iteration of a loop counts.
    collectives: the collective ops of the device program, in order.
    inputs, outputs: the leaves (arrays) of arguments and results, with their shardings.
    steps: the effect of each tactic.
    whole: ops that are replicated because they have no sharding rule, with the reason.
    uncut: for each mesh axis the work that it does not split, the largest share first.
    name: name of the function.
    figures: time, memory and energy on a machine; `None` if the plan names no machine.
    decided: the program with its decisions; `None` for a plan that was read from JSON.
    estimate: the simulated step behind `figures`; `None` without figures or program.
    recorded, recorded_code: for a plan that was read from JSON, the tactics that make the
        same decisions again, and Python code of such tactics.
    recorded_candidates: for a searched plan that was read from JSON, the rows of the table
        of simulated plans.
    recorded_parameters: for a plan that was read from JSON, the value of `num_parameters`.
    search: the search by which `autoplan` found the plan; `None` for a plan made from given
        tactics, or read from JSON.
    fixed: shardings in the user's own code that split a value, or forbid a split.
    tokens_per_step: tokens of a step, over all devices; `None` if the program has no
        tokens.
    token_input: path of the input that contains the tokens; "" if the number was given.
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
    figures: Figures | None = None
    uncut: tuple[UncutWork, ...] = ()
    name: str = ""
    decided: Decided | None = field(default=None, compare=False, repr=False)
    recorded: tuple[Tactic, ...] = field(default=(), compare=False, repr=False)
    recorded_code: str = field(default="", compare=False, repr=False)
    recorded_candidates: tuple[tuple[str, ...], ...] = field(
        default=(), compare=False, repr=False
    )
    recorded_parameters: int = field(default=0, compare=False, repr=False)
    estimate: Estimate | None = field(default=None, compare=False, repr=False)
    search: SearchResult | None = field(default=None, compare=False, repr=False)
    tokens_per_step: int | None = None
    token_input: str = ""

    @cached_property
    def num_parameters(self) -> int:
        """Number of elements of all parameters, unsharded; 0 for no parameters.

        The parameters are found by data dependence when this is first read, since that
        takes time.
        """
        if self.decided is None:
            return self.recorded_parameters
        inputs = self.decided.captured.program.inputs
        params = find_roles(self.decided.work).params
        return sum(math.prod(inputs[i].shape) for i in params)


def require_plans(plans: Iterable[PlanRecord]) -> tuple[PlanRecord, ...]:
    """The plans as a tuple; `PlanError` if the argument is no list of plans."""
    if not isinstance(plans, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise PlanError(f"others is {str(plans)[:60]!r}; wanted a list of plans")
    given = tuple(plans)
    for plan in given:
        if not isinstance(plan, PlanRecord):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise PlanError(f"others holds {str(plan)[:60]!r}; wanted a list of plans")
    return given


def figures_of(plan: PlanRecord) -> Figures:
    """The figures of a plan on its machine; `PlanError` if the plan names no machine."""
    if plan.figures is None:
        raise PlanError(
            'this plan names no machine; plan.on("tpu-v5p") gives one that does'
        )
    return plan.figures


def leaf_at(plan: PlanRecord, path: str) -> Leaf:
    """The first input or output with this path; `PlanError` if no leaf has it."""
    for leaf in (*plan.inputs, *plan.outputs):
        if leaf.path == path:
            return leaf
    raise PlanError(
        f"no leaf {path!r}; there are {[leaf.path for leaf in plan.inputs][:8]}"
    )


def estimate_of(plan: PlanRecord) -> Estimate:
    """The simulated step of a plan; `PlanError` if the plan was not simulated here."""
    if plan.estimate is None:
        raise PlanError(
            f"a plan read from JSON has the time of a step, "
            f"{figures_of(plan).step_time_s} s, but no timeline; make the plan again "
            "from the program, and name the machine"
        )
    return plan.estimate


def tactics_of(plan: PlanRecord) -> tuple[Tactic, ...]:
    """Tactics that make a plan's decisions again for the same program.

    Raises `PlanError` for a plan read from JSON that could not store a user's own tactic.
    """
    if plan.decided is not None:
        return public_tactics(plan.decided)
    if not plan.recorded:
        raise PlanError(
            "this plan was read from JSON, which cannot hold a tactic of your own that "
            "rewrites the program; make the plan again"
        )
    return plan.recorded


def code_text(plan: PlanRecord) -> str:
    """Python code of tactics that rebuild a plan.

    For a plan read from JSON, it is the code that was saved with it.
    """
    return plan.recorded_code if plan.decided is None else code_of(plan.decided)


def program_of(plan: PlanRecord) -> Decided:
    """The partitioned program of a plan, which must not be read from JSON."""
    assert plan.decided is not None, "only a plan with a program can be simulated"
    return plan.decided
