"""`auto`: a tactic that decides by a search whatever earlier tactics leave open."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from meshwright.errors import TacticError
from meshwright.machine import Machine, load_machine
from meshwright.machine.memory_size import memory_bytes, show_bytes
from meshwright.partitioner.structure.workspace import Refusal
from meshwright.partitioner.tactics import Tactic, TacticKind, Workspace
from meshwright.planner.candidates.proposal import OnProgress
from meshwright.planner.candidates.search_options import wrong_option
from meshwright.planner.prices.uniform_partition import price_ops
from meshwright.planner.prices.value_roles import EXPOSED
from meshwright.planner.solve.memory_limit import SolveBudget, find_optimum
from meshwright.planner.solve.space import Pricing, price
from meshwright.planner.strategies.symmetry import reduce_by_symmetry
from meshwright.planner.tree.cut_problem import CutState
from meshwright.planner.tree.tree_search import (
    TRAJECTORIES,
    make_engine,
    problem_on,
    search_cuts,
)
from meshwright.search import Budget, Improvement
from meshwright.search.work import WorkMeter

_ROUNDS = 200
"""Largest number of rounds of the solver."""


@dataclass(frozen=True, slots=True, repr=False)
class Auto:
    """The tactic that shards along some axes by a search for the fastest step.

    It keeps the decisions of earlier tactics.
    machine: the machine whose step time is minimized; a name means one with as many
        devices as the mesh.
    memory: bytes of each device that a plan may use, by default all that the chip lets
        a program use.
    budget_s: seconds of counted work, as in `autoplan`.
    search: "program" (integer program) or "tree" (tree search), as in `autoplan`.
    on_progress: function that is called with one line of text per improvement of a tree
        search, and at the end.
    """

    axes: tuple[str, ...]
    machine: Machine | str
    memory: float | None = None
    budget_s: float = 10.0
    search: str = "program"
    seed: int = 0
    on_progress: OnProgress | None = field(default=None, compare=False)
    kind = TacticKind.SEARCH
    rewrite = None

    def apply(self, work: Workspace) -> None:
        """Search for the best decisions that are open along the axes, and apply them.

        Raises `TacticError` if nothing fits into memory.
        """
        for axis in self.axes:
            work.mesh.require(axis)
        work.mesh.require_spatial("mw.auto knows only axes of devices")
        machine = self.machine
        if not isinstance(machine, Machine):
            machine = load_machine(machine, work.mesh.num_devices)
        op_prices = price_ops(work.graph.program, machine, work.mesh.num_devices)
        pricing = Pricing(machine, op_prices, EXPOSED, self.seed)
        usable = machine.chip.usable_bytes
        limit = usable if self.memory is None else min(self.memory, usable)
        search = _by_program if self.search == "program" else _by_tree
        meter = WorkMeter.for_budget(self.budget_s)
        tactics = search(self, work, pricing, limit, meter)
        num_refusals = len(work.refusals)
        for tactic in tactics:
            tactic.apply(work)
        del work.refusals[num_refusals:]  # only the user's own tactics report refusals
        if meter.is_cut:
            why = (
                f"cut short after {meter.real_s:.0f} s, since this machine was too slow or "
                "too busy; another run may find another plan"
            )
            work.refusals += [Refusal("the search", axis, why) for axis in self.axes]

    def __str__(self) -> str:
        name = self.machine if isinstance(self.machine, str) else self.machine.name
        how = "" if self.search == "program" else f", search={self.search!r}"
        return f"auto({list(self.axes)!r}, machine={name!r}{how})"

    def __repr__(self) -> str:
        options = {"memory": None, "budget_s": 10.0, "seed": 0}  # with their defaults
        values = ((name, getattr(self, name)) for name in options)
        more = (f", {name}={v!r}" for name, v in values if v != options[name])
        return f"mw.{str(self)[:-1]}{''.join(more)})"

    def report(self, seconds: float, num_bytes: float, limit: float) -> None:
        """Report the plan's predicted seconds and bytes to `on_progress`.

        Raises `TacticError` if the bytes are above the limit.
        """
        if num_bytes > limit:
            raise TacticError(
                f"{self} finds no plan that fits into {show_bytes(limit)} per device; "
                "use more devices, or raise memory if you gave it"
            )
        if self.on_progress is not None:
            self.on_progress(
                f"{self}: {seconds * 1e3:.1f} ms, {show_bytes(num_bytes)} by the model"
            )


def auto(  # noqa: PLR0913  the options of a search
    axes: str | Sequence[str],
    *,
    machine: Machine | str,
    memory: float | str | None = None,
    budget_s: float = 10.0,
    search: str = "program",
    seed: int = 0,
    on_progress: OnProgress | None = None,
) -> Auto:
    """A tactic that lets a search decide how some mesh axes are used.

    It goes with tactics that a person chose: in `[data_parallel("data"),
    auto(["model"], machine="h100")]` all decisions of the first tactic stay. Everything
    that is open is chosen by an integer program, as `autoplan` does for a whole mesh.
    `search="tree"` chooses shardings of inputs by tree search instead, and applies them
    as `shard` tactics. See `Auto` for the options.
    memory: "80GiB", or a number of bytes, as in `autoplan`.
    Raises `TacticError` for wrong options or, when it is applied, if nothing fits, and
    `PlanError` for a memory that is no size.
    """
    axis_names = (axes,) if isinstance(axes, str) else tuple(axes)
    if not axis_names:
        raise TacticError("auto got no axis; name at least one axis of the mesh")
    wrong = wrong_option(search, budget_s, seed, on_progress)
    if search == "experts":
        wrong = "search is 'experts', which autoplan has; wanted program or tree"
    if wrong is not None:
        raise TacticError(f"auto: {wrong}")
    limit = None if memory is None else memory_bytes(memory)
    return Auto(axis_names, machine, limit, budget_s, search, seed, on_progress)


def _by_program(
    auto: Auto, work: Workspace, pricing: Pricing, limit: float, meter: WorkMeter
) -> Sequence[Tactic]:
    """A tactic with the best strategies that the integer program finds."""
    free = [sub_axis for axis in auto.axes for sub_axis in work.sub_axes[axis]]
    priced = price(pricing, work, reduce_by_symmetry(work.state), free)
    budget = SolveBudget(_ROUNDS, meter, auto.budget_s)
    optimum = find_optimum(priced.pricer, limit, budget)
    auto.report(optimum.seconds, optimum.bytes, limit)
    return [priced.tactic(optimum, str(auto))]


def _by_tree(
    auto: Auto, work: Workspace, pricing: Pricing, limit: float, meter: WorkMeter
) -> Sequence[Tactic]:
    """The `shard` tactics that a tree search finds.

    Ctrl-C ends the search with the best tactics so far. The names of the tactics
    include the search that found them and its number of states.
    """
    problem = problem_on(work, pricing, auto.axes, limit, meter=meter)
    engine = make_engine(problem, auto.seed)

    def show(improvement: Improvement, state: CutState) -> None:
        if auto.on_progress is not None:
            seconds, states = problem.measure(state).seconds, improvement.evaluation
            auto.on_progress(f"{auto}: {seconds * 1e3:.1f} ms, state {states:,}")

    left_s = max(auto.budget_s - meter.read(), 0.01 * auto.budget_s)
    budget = Budget(left_s, None, TRAJECTORIES, meter.read)
    result = search_cuts(problem, engine, budget, show)
    auto.report(result.cost.seconds, result.cost.bytes, limit)
    origin = f"{auto}, {result.evaluations:,} states"
    return [replace(t, name=f"{origin}: {t}") for t in result.tactics]
