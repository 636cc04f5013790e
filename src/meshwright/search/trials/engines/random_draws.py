"""Random candidates: the baseline that every other engine has to beat."""

from __future__ import annotations

from dataclasses import dataclass

from meshwright.search.trials.engines.engine import Batch, Proposals, check_counts
from meshwright.search.trials.space.coding import Draws


@dataclass(frozen=True, slots=True)
class RandomDraws:
    """Independent candidates, each as likely as any other; none is tried twice.

    batch: candidates at once.
    """

    batch: int = 16

    def __post_init__(self) -> None:
        check_counts(self, batch=1)

    def propose(self, draws: Draws) -> Proposals:
        yield Batch(draws.initial(max(self.batch, len(draws.first))))
        while True:
            yield Batch(draws.several(self.batch, draws.random))
