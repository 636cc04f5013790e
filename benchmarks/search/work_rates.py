"""Seconds per unit of each kind of counted work, measured on this machine.

    python -m benchmarks search work_rates [--only gpt:t32,resnet:resnet_50] [--budget 15]

Each case is searched with the solver in this process. The CPU seconds between two counts
belong to the second one. Printed per case and kind: the seconds, and their ratio to what
was counted; and at the end, per kind, seconds per unit over all cases. Numbers in
`Work(...)` are these, rounded; counted seconds are to be within a factor of two.
"""

from __future__ import annotations

import importlib
import time
from collections import defaultdict
from concurrent.futures import Future
from typing import Any

import meshwright as mw
from benchmarks.harness import ONLY, Options, benchmark, option
from benchmarks.search.autoplan import MACHINES
from meshwright.machine import Mesh, load_machine
from meshwright.planner.driver.search import search_with_recomputation
from meshwright.planner.driver.state import SearchState
from meshwright.planner.driver.task import SearchTask, TimeBudget
from meshwright.planner.driver.tree_plans import search_trees
from meshwright.planner.driver.trials import Trials
from meshwright.planner.solve.solver_process import SolveAnswer, SolveRequest
from meshwright.planner.solve.space import Space
from meshwright.planner.solve.work_rates import CAPTURE
from meshwright.search.assignment.warm import warm
from meshwright.search.work import Work, WorkMeter

CASES = (
    "gpt:t32 tpu-v5e", "gpt3:t24 tpu-v3", "moe:moe_2_4b h100", "vit:l_16 tpu-v5e",
    "serving:it32 tpu-v5p", "resnet:resnet_50 tpu-v5e", "efficientnet:b0 tpu-v3",
    "unet:ho_256 tpu-v5e", "d4pg:humanoid tpu-v5e", "lstm:big_lstm tpu-v5p",
    "gns:edges_8192 tpu-v5e",
)  # fmt: skip


class Rates:
    """Units and CPU seconds of each kind of work, by case."""

    def __init__(self) -> None:
        self.case = ""
        self.last = time.process_time()
        self.units: dict[tuple[str, str], float] = defaultdict(float)
        self.seconds: dict[tuple[str, str], float] = defaultdict(float)
        self.known: dict[str, Work] = {}

    def count(self, work: Work, units: float) -> None:
        """Note the seconds since the last count."""
        now = time.process_time()
        key = self.case, work.name
        self.known[work.name] = work
        self.units[key] += units
        self.seconds[key] += now - self.last
        self.last = now

    def print_case(self) -> None:
        """Print the kinds of work of the present case."""
        own = [key for key in self.units if key[0] == self.case]
        counted = {k: self.units[k] * self.known[k[1]].seconds for k in own}
        real = sum(self.seconds[k] for k in own)
        print(f"{self.case}: {real:.1f} s CPU, {sum(counted.values()):.1f} s counted")
        for key in sorted(own, key=lambda k: -self.seconds[k]):
            ratio = self.seconds[key] / max(counted[key], 1e-12)
            print(f"    {key[1]:14} {self.seconds[key]:8.2f} s  x {ratio:.2f}")

    def print_all(self, options: Options) -> None:
        """Print and record seconds per unit of each kind, over all cases."""
        for name, work in self.known.items():
            keys = [key for key in self.units if key[1] == name]
            seconds = sum(self.seconds[k] for k in keys)
            units = sum(self.units[k] for k in keys)
            options.note(name, seconds / units, "s")
            each = [f"{self.seconds[k] / max(self.units[k], 1):.1e}" for k in keys]
            print(
                f"{name:14} {seconds / units:.2e} (now {work.seconds:.1e}), {seconds:.1f} "
                f"s; {' '.join(each)}"
            )


class SameProcess:
    """A solver in this process, so that all CPU seconds are seen."""

    def __init__(self) -> None:
        self.meter = WorkMeter()

    def submit(self, request: SolveRequest) -> Future[SolveAnswer]:
        """The result of a request, solved at once."""
        future: Future[SolveAnswer] = Future()
        optimum = request.solve(self.meter)
        future.set_result(SolveAnswer(optimum, self.meter.read()))
        return future


def run_case(case: str, budget_s: float, search: str) -> None:
    """Search one program on one machine."""
    target, machine_name = case.split()
    module, name = target.split(":")
    workload = importlib.import_module(f"zoo.{module}").workload
    (make,) = (f for f in workload.full if f.__name__ == name)
    fn, args = make()
    machine = load_machine(machine_name, None, MACHINES[machine_name])
    from meshwright.planner.candidates.meshes import meshes_of

    meshes: tuple[Mesh, ...] = tuple(meshes_of(machine))
    rates.last = time.process_time()
    budget = TimeBudget(budget_s, WorkMeter(budget_s))
    space = Space(mw.partition(fn, meshes[0]).capture(*args), machine)
    limit = machine.chip.usable_bytes
    task = SearchTask(space, meshes, limit, lambda seconds, num_bytes: seconds)
    budget.count(CAPTURE, len(space.graph.nodes))
    if search == "tree":
        search_trees(task, Trials(task, budget, []))
        return
    solver: Any = SameProcess()
    search_with_recomputation(SearchState(task, solver, budget))


rates = Rates()


@benchmark(
    ONLY,
    option("--budget", type=float, default=15.0),
    option("--search", default="program"),
)
def main(options: Options) -> None:
    """Measure all cases and print the rates."""
    warm(rounds=1)
    counted = WorkMeter.count

    def count(meter: WorkMeter, work: Work, units: float = 1.0) -> None:
        rates.count(work, units)
        counted(meter, work, units)

    WorkMeter.count = count
    for case in CASES:
        if not options.only or any(o in case for o in options.only.split(",")):
            rates.case = case
            run_case(case, options.budget, options.search)
            rates.print_case()
    rates.print_all(options)


if __name__ == "__main__":
    main()
