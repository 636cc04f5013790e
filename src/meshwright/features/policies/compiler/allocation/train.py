"""Training of a policy of register allocation, and its costs on projects left out."""

import json
import time
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from meshwright.errors import PolicyError
from meshwright.features.policies.compiler.allocation.cost_change import (
    CostChanges,
    FunctionCosts,
    cost_changes,
    goals,
    is_better,
    log_changes,
)
from meshwright.features.policies.compiler.allocation.evolution import (
    EvolutionState,
    advance,
    direction,
)
from meshwright.features.policies.compiler.allocation.journal import (
    EvolutionPoint,
    read_training,
    write_training,
)
from meshwright.features.policies.compiler.allocation.measured import (
    MeasuredUnit,
    measured_unit,
)
from meshwright.features.policies.compiler.allocation.policies import (
    AllocationPolicy,
    first_policy,
    save_policy,
    with_weights,
)
from meshwright.features.policies.compiler.channel import Advise, Observation
from meshwright.features.policies.compiler.compiler import ClangCompiler
from meshwright.features.policies.compiler.corpus import (
    Unit,
    fingerprint,
    one_of_each_file,
)
from meshwright.features.policies.compiler.registers.costs import FunctionCost

_SPREAD, _RATE = 0.15, 0.05
"""Standard deviation of perturbations, and the rate of Adam."""

_STATE = "training.npz"
"""File of the state after the last step."""

_MOST = 0.5
"""Difference of logarithms to which a function's costs are clipped, so that no function
outweighs many."""


@dataclass(frozen=True, slots=True)
class AllocationPlan:
    """Options of a training.

    kind: "evict" or "priority". held_out: projects that teach nothing, and on which the
        policy is measured. steps: of the evolution strategy. batch: units of a step.
    start: weights before the first step; `None` for the compiler's own rule.
    """

    kind: str
    held_out: frozenset[str]
    seconds: float
    steps: int = 60
    batch: int = 60
    workers: int = 2
    seed: int = 0
    start: AllocationPolicy | None = None


@dataclass(frozen=True, slots=True)
class AllocationTraining:
    """A policy, its learning curve, and changes of costs.

    taught: of all functions that taught. held_out: by project, and "all" of them.
    is_corrected: whether corrections were learned that are of use; else the policy is the
        heuristic. is_complete: whether all steps were taken. skipped: why units were left
        out.
    """

    policy: AllocationPolicy
    curve: list[EvolutionPoint]
    taught: CostChanges
    held_out: dict[str, CostChanges]
    is_corrected: bool
    is_complete: bool
    skipped: list[str]


@dataclass(slots=True)
class _Training:
    """State that the steps of one training share."""

    compiler: ClangCompiler
    out: Path
    plan: AllocationPlan
    pool: Executor
    end_at: float
    show: Callable[[str], None]
    start: AllocationPolicy
    skipped: list[str]

    def prepared(self, units: Sequence[Unit]) -> list[MeasuredUnit]:
        """Units that ask for decisions, in their order."""
        done = 0

        def one(unit: Unit) -> MeasuredUnit | None:
            nonlocal done
            try:
                return measured_unit(
                    self.compiler, unit, self.plan.kind, self.start, self.out / "code"
                )
            except PolicyError as fault:
                self.skipped.append(f"{unit.name}: {fault}")
                return None
            finally:
                done += 1
                self.show(f"unit {done} of {len(units)} prepared")

        found = list(self.pool.map(one, units))
        return [unit for unit in found if unit is not None and unit.asked]

    def measure(
        self, units: Sequence[MeasuredUnit], policy: Callable[[MeasuredUnit], Advise]
    ) -> dict[tuple[str, str], FunctionCosts]:
        """Costs of each function that asks, by unit and function."""

        def one(unit: MeasuredUnit) -> dict[str, FunctionCost]:
            try:
                return unit.costs(self.compiler, self.plan.kind, policy(unit))
            except PolicyError as fault:
                self.skipped.append(str(fault))
                return {}

        return {
            (unit.name, function): FunctionCosts(
                unit.project, unit.default[function], cost
            )
            for unit, found in zip(units, self.pool.map(one, units), strict=True)
            for function, cost in found.items()
        }

    def step(
        self, state: EvolutionState, units: Sequence[MeasuredUnit]
    ) -> tuple[EvolutionState, EvolutionPoint]:
        """The state after one step on some of the units, and its point of the curve."""
        draw = np.random.default_rng([self.plan.seed, state.step])
        functions = np.array([len(unit.asked) for unit in units])
        number = min(self.plan.batch, len(units))
        share = functions / functions.sum()
        chosen = draw.choice(len(units), number, replace=False, p=share)
        batch = [units[place] for place in sorted(chosen)]
        up = self.measure(batch, lambda unit: self._perturbed(state, unit, _SPREAD))
        down = self.measure(batch, lambda unit: self._perturbed(state, unit, -_SPREAD))
        known = [key for key in up if key in down]
        if not known:
            raise PolicyError(
                f"no unit of a batch compiles any more: {self.skipped[-1]}"
            )
        ahead, behind = (log_changes(side[key] for key in known) for side in (up, down))
        directions = np.stack(
            [direction(state, self.plan.seed, _number(*key)) for key in known]
        )
        means = ((ahead + behind).mean(0) / 2).tolist()
        point = EvolutionPoint(state.step, len(known), *means)
        differences = goals(ahead - behind).clip(-_MOST, _MOST)
        return (
            advance(state, directions, differences, spread=_SPREAD, rate=_RATE),
            point,
        )

    def _perturbed(
        self, state: EvolutionState, unit: MeasuredUnit, spread: float
    ) -> Advise:
        """A policy with other weights for each function of a unit."""
        policies: dict[str, AllocationPolicy] = {}

        def advise(call: Observation) -> float:
            if call.context not in policies:
                number = _number(unit.name, call.context)
                change = direction(state, self.plan.seed, number)
                weights = state.weights + spread * change
                policies[call.context] = with_weights(self.start, weights)
            return policies[call.context](call)

        return advise

    def learn(
        self,
        units: Sequence[MeasuredUnit],
        state: EvolutionState,
        curve: list[EvolutionPoint],
        mark: str,
    ) -> EvolutionState:
        """Take the steps that are left, as far as time allows; each one is kept."""
        while state.step < self.plan.steps and time.monotonic() < self.end_at:
            state, point = self.step(state, units)
            curve.append(point)
            write_training(self.out / _STATE, mark, state, curve)
            self.show(f"step {state.step} of {self.plan.steps}: {point}")
        return state


def train_allocation(
    units: Sequence[Unit],
    compiler: ClangCompiler,
    out: Path,
    plan: AllocationPlan,
    show: Callable[[str], None] = lambda text: None,
) -> AllocationTraining:
    """Train a policy; go on where an earlier call with the same folder ended.

    The policy goes to `policy.npz` in the folder, and what it is worth to `report.json`.
    """
    files = _checked(units, plan)
    out.mkdir(parents=True, exist_ok=True)
    rule, end_at = first_policy(plan.kind), time.monotonic() + plan.seconds
    start = rule if plan.start is None else plan.start
    mark = _mark(files, compiler, plan)
    state, curve = read_training(out / _STATE, mark, start.correction.weights.ravel())
    with ThreadPoolExecutor(plan.workers) as pool:
        run = _Training(compiler, out, plan, pool, end_at, show, start, [])
        ready = run.prepared(files)
        teachers = [unit for unit in ready if unit.project not in plan.held_out]
        if not teachers:
            raise PolicyError(
                "no unit that teaches has a decision of register allocation; give a larger"
                " corpus, or hold out fewer projects"
            )
        state = run.learn(teachers, state, curve, mark)
        show("measuring the policy")
        learned = with_weights(start, state.mean)
        taught = list(run.measure(teachers, lambda unit: learned).values())
        # Without proof that corrections help, the compiler's own rule is the better guess.
        is_corrected = plan.kind != "evict" or is_better(taught)
        policy = learned if is_corrected else rule
        save_policy(policy, out / "policy.npz")
        others = [unit for unit in ready if unit.project in plan.held_out]
        found = list(run.measure(others, lambda unit: policy).values())
    is_complete, changes = state.step >= plan.steps, _by_project(found)
    trained = AllocationTraining(
        policy,
        curve,
        cost_changes(taught),
        changes,
        is_corrected,
        is_complete,
        run.skipped,
    )
    report = {**asdict(trained), "policy": plan.kind}
    (out / "report.json").write_text(json.dumps(report, indent=2))
    return trained


def _checked(units: Sequence[Unit], plan: AllocationPlan) -> list[Unit]:
    """One unit of each file, if the projects to hold out are among theirs."""
    projects = {unit.project for unit in units}
    if unknown := sorted(plan.held_out - projects):
        raise PolicyError(
            f"the corpus has no project {unknown[0]!r}; wanted some of"
            f" {', '.join(sorted(projects))}"
        )
    return one_of_each_file(units)


def _mark(units: Sequence[Unit], compiler: ClangCompiler, plan: AllocationPlan) -> str:
    """A text that tells a training's kind, options and files from others."""
    teachers = [unit for unit in units if unit.project not in plan.held_out]
    files = "".join(fingerprint(unit, compiler.clang) for unit in teachers)
    weights = () if plan.start is None else plan.start.correction.weights.ravel()
    start = zlib.crc32(repr([float(each) for each in weights]).encode())
    numbers = (plan.seed, plan.batch, zlib.crc32(files.encode()), start)
    return json.dumps([plan.kind, *numbers])


def _by_project(found: Sequence[FunctionCosts]) -> dict[str, CostChanges]:
    """The changes of each project, and of all."""
    projects = sorted({each.project for each in found})
    changes = {
        project: cost_changes(each for each in found if each.project == project)
        for project in projects
    }
    return {**changes, "all": cost_changes(found)} if found else {}


def _number(unit: str, function: str) -> int:
    return zlib.crc32(f"{unit}\0{function}".encode())
