"""The surrogate's best designs within an area, found by fireflies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshwright.features.codesign.accelerator.logs.prime_space import NAMES, VALUES
from meshwright.features.codesign.accelerator.offline.surrogate import Surrogate
from meshwright.search.trials import (
    AskTell,
    Choice,
    Firefly,
    Goals,
    Range,
    Space,
    Study,
    TrialEngine,
)

SPACE = Space({name: Range(0, len(values) - 1, 1) for name, values in VALUES.items()})
"""The ten-parameter space, by the positions of values."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A design that the surrogate proposes, by the positions of its values.

    area_mm2: as predicted, with the margin.
    """

    genes: tuple[int, ...]
    merit: float
    area_mm2: float


def propose_designs(
    surrogate: Surrogate,
    context: NDArray[np.float32],
    area_mm2: float,
    *,
    evaluations: int = 10_000,
    seed: int = 0,
    engine: TrialEngine | None = None,
    on_batch: Callable[[int], None] = lambda evaluations: None,
) -> list[Proposal]:
    """The designs of the most merit whose predicted area is within the cap, best first.

    evaluations: of the surrogate; the simulator is never called.
    """
    goals = Goals({"merit": "max"}, {"area_mm2": area_mm2})
    asker = AskTell(Study(SPACE, goals, engine or Firefly(swarm=64), seed))
    while len(asker.trials) < evaluations:
        requests = asker.ask(evaluations - len(asker.trials))
        if not requests:
            break
        genes = np.array([[r.candidate[name] for name in NAMES] for r in requests])
        merits, areas = surrogate.scores(genes.astype(np.int64), context)
        asker.tell(
            [
                {"merit": merit, "area_mm2": area}
                for merit, area in zip(merits.tolist(), areas.tolist(), strict=True)
            ]
        )
        on_batch(len(asker.trials))
    found = [
        Proposal(
            tuple(int(trial.candidate[name]) for name in NAMES),
            trial.values["merit"],
            trial.values["area_mm2"],
        )
        for trial in asker.trials
        if trial.is_feasible
    ]
    return sorted(found, key=lambda each: (-each.merit, each.genes))
