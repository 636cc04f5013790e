"""The surrogate's best designs within an area, found by fireflies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshwright.features.codesign.accelerator.logs.prime_space import NAMES, VALUES
from meshwright.features.codesign.accelerator.offline.design_logs import ApplicationLog
from meshwright.features.codesign.accelerator.offline.surrogate import DesignSurrogate
from meshwright.search.trials import (
    AskTell,
    Firefly,
    Goals,
    Range,
    Space,
    Study,
)

SPACE = Space({name: Range(0, len(values) - 1, 1) for name, values in VALUES.items()})
"""The ten-parameter space, by the positions of values."""

_SWARM = 64
"""Fireflies, of which logged designs start a half."""


def best_logged(logs: Sequence[ApplicationLog]) -> NDArray[np.int64]:
    """The fastest feasible designs of logs, an equal number of each, [S, G]."""
    count = _SWARM // 2 // len(logs)
    genes = [
        log.genes[np.argsort(log.runtime_ms)[: min(count, int(log.is_feasible.sum()))]]
        for log in logs
    ]
    return np.unique(np.concatenate(genes), axis=0)


@dataclass(frozen=True, slots=True)
class ProposedDesign:
    """A design that the surrogate proposes, by the positions of its values.

    area_mm2: as predicted, with the margin.
    """

    genes: tuple[int, ...]
    merit: float
    area_mm2: float


def propose_designs(
    surrogate: DesignSurrogate,
    context: NDArray[np.float32],
    area_mm2: float,
    *,
    starts: NDArray[np.int64],
    evaluations: int = 4000,
    seed: int = 0,
) -> list[ProposedDesign]:
    """The designs of the most merit whose predicted area is within the cap, best first.

    starts: designs from which fireflies start, such as the best of the logs, [S, G].
    evaluations: of the surrogate; the simulator is never called.
    """
    goals = Goals({"merit": "max"}, {"area_mm2": area_mm2})
    first = [dict(zip(NAMES, genes, strict=True)) for genes in starts.tolist()]
    asker = AskTell(Study(SPACE, goals, Firefly(swarm=_SWARM), seed, first))
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
    found = [
        ProposedDesign(
            tuple(int(trial.candidate[name]) for name in NAMES),
            trial.values["merit"],
            trial.values["area_mm2"],
        )
        for trial in asker.trials
        if trial.is_feasible
    ]
    return sorted(found, key=lambda each: (-each.merit, each.genes))
