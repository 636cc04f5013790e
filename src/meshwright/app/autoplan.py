"""`autoplan`: search for the best plan of a step on a number of chips."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, overload

from meshwright.app.confirm.first_compiled import (
    CompilePlan,
    compile_for_its_machine,
    first_that_compiles,
)
from meshwright.app.explain.diff import diff
from meshwright.app.hosts import asked_for, found_by_one, hosts_of_search
from meshwright.app.make_plan import make_plan
from meshwright.app.partition import partition
from meshwright.app.plan import Plan
from meshwright.errors import PlanError
from meshwright.machine import Machine, Mesh
from meshwright.partitioner.decide import axes_of
from meshwright.partitioner.lower import Gather
from meshwright.partitioner.tactics import Tactic
from meshwright.planner.candidates.candidate import Candidate
from meshwright.planner.candidates.meshes import meshes_with, usable_meshes
from meshwright.planner.candidates.proposal import OnProgress
from meshwright.planner.candidates.search_result import SearchResult
from meshwright.planner.candidates.stored_weights import (
    StoredWeights,
    stored_weights,
)
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
from meshwright.registry import feature
from meshwright.run.compilers.confirm import find_backend

if TYPE_CHECKING:
    from meshwright.registry import PipelinePlan

_WAIT_S, _WAIT = 3600.0, 20.0
"""Time limit for receiving the plan of another process: `_WAIT_S` seconds plus `_WAIT`
times the search budget, since the search may take longer than its budget and compile."""

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
) -> Plan | PipelinePlan:
    """The best plan found for `fn(*args)` on a number of chips of a machine.

    args: arrays or `ShapeDtypeStruct`s. machine: a `Machine` or the name of a preset.
    chips: number of its chips to use; by default as many as `mesh` has devices.
    mesh: the only mesh to try; by default all meshes of 1 to `most_axes` axes, at most 3.
    tactics: decisions that every plan keeps; the search decides what they leave open.
    objective: "step_time", "memory", "cost", "energy" or "carbon" (the last three are
        proportional to the step time), or weights: with {"step_time": 1, "memory": 0.3}
        0.3 % less time is worth as much as 1 % less memory.
    memory: limit per device: "80GiB", "512 MB", or bytes; by default all that the chip
        offers.
    budget_s: search time in seconds, counted in units of work so that the result does not
        depend on how fast or busy this computer is. When it is used up, or on Ctrl-C, the
        best plan so far is returned. After 8 times as many real seconds plus 2 minutes, a
        search is cut short; `search.notes` then says so.
    place: location of the machine, which decides the carbon per kWh.
    weights_of: a plan of another program with the same weights, such as prefill for
        decoding. All weights keep the shardings of that plan, on its mesh; the plan's notes
        say so.
    experts: try the strategies that experts use by hand, too.
    search: "program" for an integer program, "tree" for a Monte Carlo tree search over
        cuts of inputs, whose plans are lists of `shard` tactics, or "experts" to only
        simulate the strategies that experts use by hand.
    seed: random seed of the search.
    confirm: compile the plan with the machine's real compiler, from `meshwright[tpu]` or
        `meshwright[gpu]`. If it fails, the next best plan is tried.
    on_progress: a function that is called with lines of text.
    pipeline: return a `PipelinePlan` instead of a `Plan`: stages on parts of the machine,
        microbatches and their schedule. Only machine, chips and memory are used then.
        "auto": search for both, and return the one with the shorter step.
    With several processes (`jax.distributed`) all must call this; process 0 searches for
    all.
    The plan's `search` lists all simulated plans. `partition(fn, plan.mesh, plan.tactics)`
    runs the plan. Buffers of state that the step updates are assumed to be donated.
    Raises `PlanError` if no plan fits, or if no mesh is compatible with the tactics.
    """
    request = SearchRequest(
        machine, chips, mesh, most_axes, objective, memory, budget_s, place, tactics,
        experts, search, seed, on_progress or ignore_progress, confirm,
    )  # fmt: skip
    if pipeline not in (True, False, "auto"):
        raise PlanError(f"pipeline is {pipeline!r}; wanted True, False or 'auto'")
    if pipeline == "auto" and objective != "step_time":
        raise PlanError(
            f"pipeline='auto' compares step times, and the objective is {objective!r}; "
            "leave out the objective, or choose pipeline=True or False"
        )
    plan = partial(find_plan, fn, args, request, weights_of=weights_of)
    if not pipeline:
        return plan()
    staged = partial(feature("find_pipeline"), fn, args, request)
    return feature("faster_of")(plan, staged) if pipeline == "auto" else staged()


def find_plan(
    fn: Callable[..., Any],
    args: Sequence[Any],
    request: SearchRequest,
    compile_plan: CompilePlan | None = None,
    weights_of: Plan | None = None,
) -> Plan:
    """The best plan found for `fn(*args)` under the options of `autoplan`.

    compile_plan: replaces the machine's real compiler, for requests with `confirm`.
    """
    if not isinstance(args, tuple | list):
        raise PlanError(
            f"args is a {type(args).__name__}; wanted the arguments of the function in a "
            "tuple, such as (state, batch) or (x,)"
        )
    stored = None if weights_of is None else _weights(weights_of)
    if stored is not None and request.mesh is None:
        request = replace(request, mesh=stored.mesh)
    resolved = request.resolve()
    if request.confirm and compile_plan is None:
        find_backend(resolved.machine)  # an error before the search, not after it
        compile_plan = compile_for_its_machine

    def find() -> Plan:
        return _find_here(fn, args, request, resolved, compile_plan, stored)

    hosts = hosts_of_search()
    if hosts is None:
        return find()
    asked = asked_for(fn, args, request, resolved)
    if hosts.index == 0:
        return found_by_one(hosts, asked, find, lambda plan: (plan, plan.search))
    request.on_progress("waiting for the plan of process 0")
    sent, search = hosts.receive(asked, _WAIT_S + _WAIT * request.budget_s)
    return _rebuild(fn, args, resolved, search, sent)


def _find_here(
    fn: Callable[..., Any],
    args: Sequence[Any],
    request: SearchRequest,
    resolved: ResolvedRequest,
    compile_plan: CompilePlan | None,
    stored: StoredWeights | None,
) -> Plan:
    """The best plan found by a search that runs in this process."""
    budget = TimeBudget.of(_SEARCH_SHARE * request.budget_s)
    if request.search != "program":
        task = replace(_task(fn, args, request, resolved), stored=stored)
        budget.count(CAPTURE, len(task.space.graph.nodes))
        trials = Trials(task, budget, [])
        find = search_trees if request.search == "tree" else search_experts
        found = find(task, trials)
        return _final_plan(found, task, trials, resolved.place, compile_plan)
    with SolverProcess() as solver:  # starts while the program is captured
        task = replace(_task(fn, args, request, resolved), stored=stored)
        budget.count(CAPTURE, len(task.space.graph.nodes))
        state = search_with_recomputation(SearchState(task, solver, budget))
    found = state.result()
    return _final_plan(found, state.task, state.trials, resolved.place, compile_plan)


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


def _rebuild(
    fn: Callable[..., Any],
    args: Sequence[Any],
    resolved: ResolvedRequest,
    search: SearchResult,
    sent: Plan,
) -> Plan:
    """The plan that process 0 found and sent, rebuilt for this process's function."""
    best = search.candidates[0]
    captured = partition(fn, best.mesh).capture(*args)
    made = make_plan(captured, best.mesh, best.tactics, Gather.SHARED)
    plan = made.on(resolved.machine, resolved.place, donate_state=True)
    plan = replace(plan, search=search)
    if plan.to_json() != sent.to_json():
        raise PlanError(
            "the function or its constants differ between process 0 and this one, so that "
            f"the plan of process 0 gives another step here:\n{diff(sent, plan)}"
        )
    return plan


def _task(
    fn: Callable[..., Any],
    args: Sequence[Any],
    request: SearchRequest,
    resolved: ResolvedRequest,
) -> SearchTask:
    """The search task: the captured program, and the meshes that the tactics allow."""
    tactics, machine = tuple(request.tactics), resolved.machine
    meshes = (
        meshes_with(machine, axes_of(tactics), request.most_axes)
        if resolved.mesh is None
        else (resolved.mesh,)
    )
    captured = partition(fn, meshes[0]).capture(*args)
    if not captured.program.ops:
        raise PlanError("the step returns nothing that it computes; nothing to plan")
    space = Space(captured, machine, request.seed, tactics)
    return SearchTask(
        space,
        usable_meshes(space, meshes),
        resolved.limit,
        resolved.objective,
        request.on_progress,
        with_experts=request.experts,
    )


def _final_plan(
    search: SearchResult,
    task: SearchTask,
    trials: Trials,
    place: Location | None,
    compile_plan: CompilePlan | None,
) -> Plan:
    """The plan of the best candidate; with `compile_plan`, of the best that compiles."""
    space, last = task.space, trials.lowered
    given = [tactic for tactic in space.given if tactic.rewrite is not None]

    def plan_of(best: Candidate) -> Plan:
        """The simulated plan of a candidate; the device program is reused if known."""
        is_same = given == [t for t in best.tactics if t.rewrite is not None]
        made = make_plan(
            space.original,
            best.mesh,
            best.tactics,
            Gather.SHARED,
            space.graph if is_same else None,
            last[1] if is_same and last and last[0] is best else None,
        )
        return made.on(space.machine, place, donate_state=True)

    if compile_plan is None:
        plan = plan_of(search.candidates[0])
    else:
        plan, search = first_that_compiles(
            search, plan_of, compile_plan, task.on_progress
        )
    for note in search.notes:
        task.on_progress(note)
    return replace(plan, search=search)
