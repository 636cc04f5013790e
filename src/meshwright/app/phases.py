"""`plan_phases`: plans of several programs over one copy of their weights.

Serving a language model has two such programs, prefill and decoding (Pope et al.,
"Efficiently Scaling Transformer Inference", MLSys 2023).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from meshwright.app.autoplan import autoplan
from meshwright.app.output.numbers import show_seconds
from meshwright.app.plan import Plan
from meshwright.errors import PlanError


@dataclass(frozen=True, slots=True)
class ServedPhase:
    """One program of several that share their weights.

    args: arrays or `ShapeDtypeStruct`s. times: how often the program runs for one batch,
    such as once for prefill and 64 times for decoding 64 tokens.
    """

    fn: Callable[..., Any]
    args: tuple[Any, ...]
    times: int = 1

    def __post_init__(self) -> None:
        if not callable(self.fn):
            raise PlanError(f"a phase got {self.fn!r:.60}; wanted a function first")
        if not isinstance(self.args, tuple):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise PlanError(
                f"a phase got {type(self.args).__name__} as arguments; wanted a tuple, "
                "such as (params, prompts)"
            )
        if isinstance(self.times, bool) or self.times < 1:
            raise PlanError(
                f"a phase runs {self.times!r} times; wanted a whole number above 0"
            )


@dataclass(frozen=True, slots=True)
class PhasePlans:
    """Plans of phases that store all weights alike.

    alone_s: seconds of each phase, all runs together, if it chose how weights are stored.
    """

    plans: tuple[Plan, ...]
    times: tuple[int, ...]
    alone_s: tuple[float, ...]

    def __getitem__(self, index: int) -> Plan:
        return self.plans[index]

    @property
    def seconds(self) -> float:
        """Simulated seconds of all runs of all phases."""
        return sum(map(_seconds, self.plans, self.times))

    def __str__(self) -> str:
        mesh = self.plans[0].mesh
        lines = [f"{show_seconds(self.seconds)} on mesh {mesh}, weights stored alike"]
        rows = zip(self.plans, self.times, self.alone_s, strict=True)
        for plan, times, alone_s in rows:
            taken = show_seconds(_seconds(plan, times))
            tactics = ", ".join(map(str, plan.tactics))
            alone = show_seconds(alone_s)
            lines.append(f"  {plan.name} x{times}: {taken} ({alone} alone), {tactics}")
        return "\n".join(lines)


def plan_phases(
    phases: Sequence[tuple[Any, ...] | ServedPhase], **options: Any
) -> PhasePlans:
    """The plans of phases with the least seconds together, which store weights alike.

    phases: `(fn, args)` or `(fn, args, times)` for each program, as in `ServedPhase`.
    options: those of `autoplan`; each search gets the whole `budget_s`.

    Each phase is planned alone first. For each of these plans the other phases are
    planned over its weights, and the set that takes least time is the answer. It is
    never slower than the sets that are dictated by one phase.
    Raises `PlanError` if there is no set of plans that fit, or for wrong options.
    """
    checked = [
        each if isinstance(each, ServedPhase) else ServedPhase(*each) for each in phases
    ]
    if len(checked) < 2:
        raise PlanError(
            f"plan_phases got {len(checked)} phase; wanted at least 2, and autoplan "
            "plans a single program"
        )
    taken = [name for name in ("weights_of", "pipeline") if name in options]
    if taken:
        raise PlanError(f"plan_phases sets {taken[0]} itself; leave it out")
    alone = [autoplan(each.fn, each.args, **options) for each in checked]
    times = tuple(each.times for each in checked)
    shared = {k: v for k, v in options.items() if k != "mesh"}  # that of the leader
    plan_sets: list[tuple[Plan, ...]] = []
    errors: list[str] = []
    for number, leader in enumerate(alone):
        plans = [leader] * len(alone)
        try:
            for i, each in enumerate(checked):
                if i != number:
                    plans[i] = autoplan(each.fn, each.args, weights_of=leader, **shared)
            plan_sets.append(tuple(plans))
        except PlanError as error:
            errors.append(f"with the weights of {leader.name}: {error}")
    if not plan_sets:
        raise PlanError("no plans store the weights alike; " + "; ".join(errors))
    alone_s = tuple(map(_seconds, alone, times))
    sets = [PhasePlans(plans, times, alone_s) for plans in plan_sets]
    return min(sets, key=lambda each: each.seconds)


def _seconds(plan: Plan, times: int) -> float:
    return plan.step_time_s * times
