"""`PlanRecord`: the data of a plan, which can be written as JSON."""

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Self

from jax.sharding import PartitionSpec

from meshwright.app.record.parts import (
    Collective,
    FixedSharding,
    Leaf,
    TacticEffect,
    UncutWork,
    UnknownLoop,
)
from meshwright.app.record.rebuild import code_of, public_tactics
from meshwright.errors import PlanError
from meshwright.machine import Mesh
from meshwright.partitioner.decide import Decided
from meshwright.partitioner.lower import Gather
from meshwright.partitioner.structure.input_roles import find_roles
from meshwright.partitioner.tactics import Tactic
from meshwright.planner.candidates.search_result import SearchResult
from meshwright.predict.estimate import Estimate
from meshwright.predict.figures import Figures


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
    unpriced: ops of unknown cost with their source lines; if there are any, time, memory
        and shares of work are lower bounds.
    loops: loops whose number of iterations depends on values, with the number that all
        counts and figures assume.
    donated: paths of the inputs whose memory the step takes for its results; figures and
        `mw.partition(fn, plan)` agree on them.
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
    unpriced: tuple[str, ...] = ()
    loops: tuple[UnknownLoop, ...] = ()
    donated: tuple[str, ...] = ()
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

    def named(self, name: str) -> Self:
        """This plan with another name, which appears on pages about it."""
        return replace(self, name=name)

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

    # -- figures on a machine --------------------------------------------------------------

    @property
    def step_time_s(self) -> float:
        """Simulated seconds of one step."""
        return figures_of(self).step_time_s

    @property
    def mfu(self) -> float:
        """Model FLOP utilisation, from 0 to 1.

        It is the share of the machine's 16-bit peak FLOP/s that the model's FLOPs reach in
        a step.
        """
        return figures_of(self).mfu

    @property
    def tokens_per_s(self) -> float | None:
        """Tokens per second, over all devices; `None` if the step has no tokens."""
        tokens = self.tokens_per_step
        return None if tokens is None else tokens / self.step_time_s

    @property
    def peak_memory_bytes(self) -> int:
        """Peak memory of one device, in bytes."""
        return figures_of(self).peak_memory_bytes

    @property
    def fits(self) -> bool:
        """Whether the peak memory is within what a device offers to programs."""
        return figures_of(self).fits

    @property
    def breakdown(self) -> Mapping[str, float]:
        """Seconds of one step by activity: computing, idle, and kinds of collectives.

        A kind has two entries: `all_reduce exposed` is time in which nothing is computed,
        `all_reduce hidden` is time that overlaps with computing.
        """
        return figures_of(self).breakdown

    @property
    def energy_j(self) -> float | None:
        """Energy of one step in joules, of all devices, with the data centre's overhead."""
        return figures_of(self).energy_j

    @property
    def cost_usd(self) -> float | None:
        """Price of one step in dollars, at the list price of the devices."""
        return figures_of(self).cost_usd

    @property
    def co2e_g(self) -> float | None:
        """Grams of CO2 equivalent of one step; `None` until `on` is given a place."""
        return figures_of(self).co2e_g


def require_plans(plans: Iterable[PlanRecord]) -> tuple[PlanRecord, ...]:
    """The plans as a tuple; `PlanError` if the argument is no list of plans."""
    if not isinstance(plans, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise PlanError(f"others is {str(plans)[:60]!r}; wanted a list of plans")
    listed = tuple(plans)
    for plan in listed:
        if not isinstance(plan, PlanRecord):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise PlanError(f"others holds {str(plan)[:60]!r}; wanted a list of plans")
    return listed


def figures_of(plan: PlanRecord) -> Figures:
    """The figures of a plan on its machine; `PlanError` if the plan names no machine."""
    if plan.figures is None:
        raise PlanError(
            'this plan names no machine; plan.on("tpu-v5p") gives one that does'
        )
    return plan.figures


def estimate_of(plan: PlanRecord) -> Estimate:
    """The simulated step of a plan; `PlanError` if the plan was not simulated here."""
    if plan.estimate is None:
        raise PlanError(
            f"a plan read from JSON has the time of a step, "
            f"{figures_of(plan).step_time_s} s, but no timeline; make the plan again "
            "from the program, and name the machine"
        )
    return plan.estimate


def program_of(plan: PlanRecord) -> Decided:
    """The partitioned program of a plan, which must not be read from JSON."""
    assert plan.decided is not None, "only a plan with a program can be simulated"
    return plan.decided
