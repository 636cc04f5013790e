"""`search_design`: the best design of the space for programs, within caps."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from os import PathLike

import numpy as np

from meshwright.errors import NoDesignError
from meshwright.features.codesign.accelerator.design.design import Design
from meshwright.features.codesign.accelerator.search.programs import TracedTargets
from meshwright.features.codesign.accelerator.search.space import (
    datapaths,
    design_of,
    known_designs,
)
from meshwright.features.codesign.accelerator.search.worth import Worth, objective_of
from meshwright.features.codesign.accelerator.workload.layers import Workload
from meshwright.search.trials import (
    Front,
    Goals,
    Space,
    Study,
    Trial,
    TrialEngine,
    find_engine,
    run_trials,
)
from meshwright.search.trials.space.coding import Coding


@dataclass(frozen=True, slots=True)
class FoundDesign:
    """The best design of a search.

    trial: the trial that found it, with its figures relative to the baseline.
    workloads: the layers of each program, at the batch at which its figures are taken.
    batches: these batches; empty where the programs fix them.
    """

    design: Design
    trial: Trial
    front: Front
    workloads: tuple[Workload, ...]
    batches: tuple[int, ...]


def die_shrunk(name: str = "tpu-v3", node_nm: float = 7.0) -> Design:
    """A design of an older chip at a newer node, as a baseline."""
    return Design.load(name).changed(node_nm=node_nm)


def search_design(  # noqa: PLR0913  an option each
    targets: Sequence[str],
    *,
    objective: str = "perf/tdp",
    area_mm2: float = math.inf,
    tdp_w: float = math.inf,
    base: Design | None = None,
    engine: str | TrialEngine = "memetic",
    trials: int = 2000,
    seed: int = 0,
    journal: str | PathLike[str] | None = None,
    workers: int = 0,
    is_fused: bool = True,
    on_trial: Callable[[Trial], None] = lambda trial: None,
    say: Callable[[str], None] = lambda text: None,
) -> FoundDesign:
    """The best design for targets within caps of area and peak power.

    Area and power are known without a simulation, so trials are spent within the caps. The
    first are of `known_designs`. Where the batch is free, a design for one program has a
    native batch; of several, each gets the batch with which a design is fastest, as on the
    baseline, and the design found has the batch of most of them.

    base: design to which figures are relative, and whose clock, node and number format
        candidates have; a TPU v3 at 7 nm if none is given.
    engine, journal, workers: as in `nas.search`.
    """
    base = base or die_shrunk()
    programs = TracedTargets(tuple(targets))
    worth = Worth(programs, base, area_mm2, tdp_w, is_fused)
    caps = {"area_mm2": area_mm2, "tdp_w": tdp_w}
    limits = {name: cap for name, cap in caps.items() if cap < math.inf}
    goals = Goals(objective_of(objective), limits)
    space = datapaths(worth.has_native_batch)
    # Where few designs keep the caps, violations lead to them.
    if limits and _share_within(space, worth, seed) >= _LEAST_SHARE:
        space = replace(space, where=worth.is_within)
    known = known_designs(base, worth.has_native_batch)
    first = [candidate for candidate in known if worth.is_within(candidate)]
    worth.rate_base()
    study = Study(space, goals, find_engine(engine), seed, first)
    front = run_trials(
        study, worth, trials=trials, journal=journal, workers=workers,
        on_trial=on_trial, say=say,
    )  # fmt: skip
    if not front.points:
        raise NoDesignError(_why_none(front, limits))
    best = front.points[0]
    design = design_of(best.candidate, base)
    batches = worth.best_batches(design)
    workloads = tuple(programs.at(b)[number] for number, b in enumerate(batches))
    if not programs.has_batch:
        return FoundDesign(design, best, front, workloads, ())
    design = design.changed(batch=Counter(batches).most_common(1)[0][0])
    return FoundDesign(design, best, front, workloads, batches)


_NUM_DRAWN, _LEAST_SHARE = 1000, 0.02
"""Random designs that are drawn, and the share of them that has to keep the caps."""


def _share_within(space: Space, worth: Worth, seed: int) -> float:
    """The share of random designs that keeps the caps; none is simulated."""
    coding, random = Coding.of(space), np.random.default_rng(seed)
    drawn = (coding.random_one(random).tolist() for _ in range(_NUM_DRAWN))
    return sum(worth.is_within(space.decode(code)) for code in drawn) / _NUM_DRAWN


def _why_none(front: Front, limits: dict[str, float]) -> str:
    """Why no design was found: the least that any needs of each cap, and what failed."""
    measured = [trial.values for trial in front.trials if trial.values]
    reasons = Counter(trial.reason for trial in front.trials if not trial.values)
    failed = [f"{n} failed with: {reason}" for reason, n in reasons.most_common(1)]
    if not measured:
        return f"none of {len(front.trials)} designs runs; {'; '.join(failed)}"
    needed = [
        f"{name} {cap:g} (the least of {len(front.trials)} trials is "
        f"{min(values[name] for values in measured):.3g})"
        for name, cap in limits.items()
    ]
    kept = f"no design keeps {' and '.join(needed)}; raise the caps or the trials"
    return "; ".join([kept, *failed])
