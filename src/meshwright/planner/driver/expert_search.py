"""The search that simulates expert plans alone, on all meshes of a task.

It needs no integer program. Every plan that it finds is a list of published tactics.
"""

from collections.abc import Mapping

from meshwright.planner.candidates.expert_plans import (
    AS_GIVEN,
    expert_strategies,
    inference_strategies,
    is_served,
)
from meshwright.planner.candidates.search_result import SearchResult
from meshwright.planner.driver.task import SearchTask
from meshwright.planner.driver.trials import Trials


def search_experts(task: SearchTask, trials: Trials) -> SearchResult:
    """Simulate the expert strategies on each mesh of a task, while there is time.

    After Ctrl-C, the best plan found so far is the result. Raises `PlanError` if no
    plan fits into memory.
    """
    is_interrupted, num_meshes = False, 0
    is_served_here = is_served(task.space.start(task.meshes[0]))
    alone: Mapping[str, tuple[()]] = {AS_GIVEN: ()} if task.space.kept_tactics else {}
    try:
        for mesh in task.meshes:
            if trials.has_fitting and not trials.budget.has_time(1):
                break
            served = inference_strategies(mesh) if is_served_here else {}
            for name, tactics in {**alone, **expert_strategies(mesh), **served}.items():
                if not trials.has_fitting or trials.budget.has_time(1):
                    trials.simulate(name, mesh, tactics)
            num_meshes += 1
    except KeyboardInterrupt:
        is_interrupted = True
        if not trials.has_fitting:
            raise
    return trials.result("experts", num_meshes, len(task.meshes), is_interrupted)
