"""`autoplan`: search for the best plan of a step on a number of chips."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, overload

from meshwright.app.confirm.first_compiled import first_that_compiles
from meshwright.app.hosts import asked_for, found_by_one, hosts_of_search, rebuild_plan
from meshwright.app.make_plan import simulated_plan
from meshwright.app.partition import partition
from meshwright.app.plan import Plan
from meshwright.errors import PlanError
from meshwright.machine import Machine, Mesh
from meshwright.partitioner.decide import axes_of
from meshwright.partitioner.tactics import Tactic
from meshwright.planner.candidates.candidate import Candidate
from meshwright.planner.candidates.meshes import meshes_with, usable_meshes
from meshwright.planner.candidates.proposal import OnProgress
from meshwright.planner.candidates.stored_weights import StoredWeights, stored_weights
from meshwright.planner.driver.expert_search import search_experts
from meshwright.planner.driver.request import ResolvedRequest, SearchRequest
from meshwright.planner.driver.search import search_with_recomputation
from meshwright.planner.driver.state import SearchState
from meshwright.planner.driver.task import SearchTask, TimeBudget, ignore_progress
from meshwright.planner.driver.tree_plans import search_trees
from meshwright.planner.driver.trials import Trials
from meshwright.planner.solve.solver_process import SolverProcess
from meshwright.planner.solve.space import Space
from meshwright.planner.solve.work_rates import CAPTURE
from meshwright.predict.energy import Location
from meshwright.program.capture.arguments import Numbers
from meshwright.registry import feature
from meshwright.run.compilers.confirm import find_backend

if TYPE_CHECKING:
    from meshwright.registry import PipelinePlan

_WAIT_S = 3600.0
"""Seconds to wait for the plan of another process, without the time of its search."""

_WAIT_FACTOR = 20.0
"""Time to wait for the search of another process, as a multiple of the search's budget.

The search may take longer than its budget, and compile.
"""

_SEARCH_SHARE = 0.96
"""Share of the time budget for the search. The rest is for building the final plan, and for
solver calls that end late.
"""


@overload
def autoplan(
    fn: Callable[..., Any],
    args: Sequence[Any],
    *,
    pipeline: Literal[True],
    **options: Any,
) -> PipelinePlan: ...


@overload
def autoplan(
    fn: Callable[..., Any],
    args: Sequence[Any],
    *,
    machine: Machine | str,
    pipeline: Literal[False] = False,
    **options: Any,
) -> Plan: ...


@overload
def autoplan(
    fn: Callable[..., Any],
    args: Sequence[Any],
    *,
    pipeline: Literal["auto"],
    **options: Any,
) -> Plan | PipelinePlan: ...


def autoplan(  # noqa: PLR0913  # pyright: ignore[reportInconsistentOverload]
    fn: Callable[..., Any],
    args: Sequence[Any],
    *,
    machine: Machine | str,
    chips: int | None = None,
    mesh: Mesh | Mapping[str, int] | None = None,
    most_axes: int = 2,
    tactics: Sequence[Tactic] = (),
    objective: str | Mapping[str, float] = "step_time",
    memory: float | str | None = None,
    budget_s: float = 15.0,
    place: Location | str | None = None,
    weights_of: Plan | None = None,
    experts: bool = True,
    search: str = "program",
    seed: int = 0,
    confirm: bool = False,
    on_progress: OnProgress | None = None,
    pipeline: bool | Literal["auto"] = False,
    loops: Mapping[str, int] | None = None,
    donate_argnums: Numbers = None,
) -> Plan | PipelinePlan:
    """The best plan found for `fn(*args)` on a number of chips of a machine.

    args: arrays or `ShapeDtypeStruct`s.
    weights_of: a plan of another program with the same weights, such as prefill for
        decoding. All weights keep the shardings of that plan, on its mesh; the plan's notes
        say so.
    pipeline: return a `PipelinePlan` instead of a `Plan`: stages on parts of the machine,
        microbatches and their schedule. Only machine, chips, memory, place, confirm and
        budget_s are used then; tactics, mesh, search and most objectives are refused.
        "auto": search for both, each with half of the budget, and return the one with the
        shorter step; its candidates have the other one, or the reason why there is none.
    The other options are the fields of `SearchRequest`, which describes them.
    With several processes (`jax.distributed`) all must call this; process 0 searches for
    all.
    The plan's `search` lists all simulated plans. `partition(fn, plan)` runs the plan, and
    donates what it assumes (`plan.donated`).
    Raises `PlanError` if no plan fits, or if no mesh is compatible with the tactics.
    """
    request = SearchRequest(
        machine=machine, chips=chips, mesh=mesh, most_axes=most_axes, tactics=tactics,
        objective=objective, memory=memory, budget_s=budget_s, place=place,
        experts=experts, search=search, seed=seed, confirm=confirm,
        on_progress=on_progress or ignore_progress, loops=loops,
        donate_argnums=donate_argnums,
    )  # fmt: skip
    if pipeline not in (True, False, "auto"):
        raise PlanError(f"pipeline is {pipeline!r}; wanted True, False or 'auto'")
    if pipeline == "auto":  # two searches
        request.resolve()  # a budget that is no number is an error of its own
        request = replace(request, budget_s=request.budget_s / 2)
    find = partial(find_plan, fn, args, request, weights_of=weights_of)
    if not pipeline:
        return find()
    return feature("plan_or_pipeline")(pipeline, fn, args, request, find)


# `help(mw.autoplan)` describes all options, too.
autoplan.__doc__ = f"{autoplan.__doc__}\n    {SearchRequest.__doc__}"


def find_plan(
    fn: Callable[..., Any],
    args: Sequence[Any],
    request: SearchRequest,
    weights_of: Plan | None = None,
) -> Plan:
    """The best plan found for `fn(*args)` under the options of `autoplan`."""
    if not isinstance(args, tuple | list):
        raise PlanError(
            f"args is a {type(args).__name__}; wanted the arguments of the function in a "
            "tuple, such as (state, batch) or (x,)"
        )
    weights = None if weights_of is None else _weights(weights_of)
    if weights is not None and request.mesh is None:
        request = replace(request, mesh=weights.mesh)
    resolved = request.resolve()
    if request.confirm:
        find_backend(resolved.machine)  # an error before the search, not after it

    def find() -> Plan:
        return _find_here(fn, args, request, resolved, weights)

    hosts = hosts_of_search()
    if hosts is None:
        return find()
    description = asked_for(fn, args, request, resolved)
    if hosts.index == 0:
        return found_by_one(hosts, description, find)
    request.on_progress("waiting for the plan of process 0")
    wait_s = _WAIT_S + _WAIT_FACTOR * request.budget_s
    first_plan, search = hosts.receive(description, wait_s)
    return rebuild_plan(fn, args, request, resolved, search, first_plan)


def _find_here(
    fn: Callable[..., Any],
    args: Sequence[Any],
    request: SearchRequest,
    resolved: ResolvedRequest,
    weights: StoredWeights | None,
) -> Plan:
    """The best plan found by a search that runs in this process.

    With `confirm`, it is the best that compiles.
    """
    budget = TimeBudget.of(_SEARCH_SHARE * request.budget_s)
    if request.search == "program":
        with SolverProcess() as solver:  # starts while the program is captured
            task = _task(fn, args, request, resolved, weights, budget)
            state = search_with_recomputation(SearchState(task, solver, budget))
        task, trials, result = state.task, state.trials, state.result()
    else:
        task = _task(fn, args, request, resolved, weights, budget)
        trials = Trials(task, budget, [])
        search = search_trees if request.search == "tree" else search_experts
        result = search(task, trials)

    def plan_of(candidate: Candidate) -> Plan:
        return simulated_plan(
            candidate, task.space, trials.lowered, resolved.place, task.donate_state
        )

    if request.confirm:
        plan, result = first_that_compiles(result, plan_of, request.on_progress)
    else:
        plan = plan_of(result.candidates[0])
    for note in result.notes:
        request.on_progress(note)
    return replace(plan, search=result)


def _weights(plan: Plan) -> StoredWeights:
    """The weights of a plan, with their shardings, for the search to keep.

    Raises `PlanError` if the plan was read from a file.
    """
    if not isinstance(plan, Plan):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise PlanError(f"weights_of is {plan!r:.60}; wanted a plan, or None")
    if plan.decided is None:
        raise PlanError(
            f"weights_of is a plan of {plan.name} that was read from a file, without its "
            "program; make it again by autoplan or by partition(...).plan(...)"
        )
    return stored_weights(plan.decided, plan.name or "another program")


def _task(
    fn: Callable[..., Any],
    args: Sequence[Any],
    request: SearchRequest,
    resolved: ResolvedRequest,
    weights: StoredWeights | None,
    budget: TimeBudget,
) -> SearchTask:
    """The search task: the captured program, and the meshes that the tactics allow."""
    tactics, machine = tuple(request.tactics), resolved.machine
    meshes = (
        meshes_with(machine, axes_of(tactics), request.most_axes)
        if resolved.mesh is None
        else (resolved.mesh,)
    )
    step = partition(
        fn, meshes[0], donate_argnums=request.donate_argnums, loops=request.loops
    )
    program = step.capture(*args)
    if not program.program.ops:
        raise PlanError("the step returns nothing that it computes; nothing to plan")
    space = Space(program, machine, request.seed, tactics)
    meshes = usable_meshes(space, meshes)
    budget.count(CAPTURE, len(space.graph.nodes))
    return SearchTask(
        space=space,
        meshes=meshes,
        limit=resolved.limit,
        value_of=resolved.objective,
        on_progress=request.on_progress,
        with_experts=request.experts,
        stored_weights=weights,
        donate_state=request.donates_state,
    )
