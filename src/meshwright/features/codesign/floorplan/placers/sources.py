"""Sources of placements besides moves: episodes of a policy, and analytic placement."""

from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from meshwright.errors import FloorplanError
from meshwright.features.codesign.floorplan.costs.tables import make_tables
from meshwright.features.codesign.floorplan.netlist.placement import ChipPlacement
from meshwright.features.codesign.floorplan.policy.collect import CollectorPool
from meshwright.features.codesign.floorplan.policy.shipped import shipped_policy
from meshwright.features.codesign.floorplan.policy.task import make_task
from meshwright.features.codesign.floorplan.policy.training import (
    EPOCHS,
    learning_rate,
    read_floorplan_policy,
)
from meshwright.features.codesign.floorplan.starts.analytic import (
    STEPS,
    Patience,
    analytic,
)
from meshwright.features.codesign.floorplan.starts.room import make_room
from meshwright.features.codesign.floorplan.starts.start import legalize, upright
from meshwright.learn.arrays import numbered_leaves, restored_tree
from meshwright.learn.ppo import PolicyTrainer


class PlacementSource(Protocol):
    """A source of whole placements, one per round."""

    def propose(self) -> tuple[ChipPlacement | None, int]:
        """A legal placement, if the round found one, and the evaluations it took."""
        ...

    def saved(self) -> dict[str, np.ndarray]:
        """All that a resumed search needs."""
        ...

    def restore(self, saved: dict[str, np.ndarray]) -> None:
        """Set all that `saved` gives."""
        ...


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What a source may ask of its search.

    collectors: threads for episodes. policy: file or folder of a trained policy.
    patience: how long one analytic placement may take; `None` for as long as it needs.
    """

    seed: int
    collectors: int
    policy: Path | None
    pool: Executor
    patience: Patience | None = None


class PolicySource:
    """Episodes of a policy that learns after each round (fine-tuning)."""

    def __init__(
        self,
        frame: ChipPlacement,
        weights: tuple[float, float, float],
        options: SourceOptions,
    ) -> None:
        path = options.policy
        policy = shipped_policy() if path is None else read_floorplan_policy(path)
        self._trainer = PolicyTrainer(policy, epochs=EPOCHS)
        task = make_task(frame, weights)
        self._pool = CollectorPool(task, options.collectors, options.pool)
        self._seed, self._round = options.seed, 0

    def propose(self) -> tuple[ChipPlacement | None, int]:
        """The best placement of a round of episodes, and their steps."""
        seed = (self._seed, self._round)
        played = self._pool.play(self._trainer.policy, seed)
        self._trainer.rate = learning_rate(self._round)
        self._pool.learn(self._trainer, played, seed)
        self._round += 1
        return played.best, played.num_steps

    def saved(self) -> dict[str, np.ndarray]:
        """The policy as it has learned, and the number of rounds."""
        policy = self._trainer.policy
        arrays = numbered_leaves("arr_", (policy.params, policy.state))
        return {**arrays, "round": np.array(self._round)}

    def restore(self, saved: dict[str, np.ndarray]) -> None:
        """Set all that `saved` gives."""
        policy = self._trainer.policy
        form = (policy.params, policy.state)
        params, state = restored_tree(form, saved, "arr_", Path("search.npz"))
        self._trainer.policy = type(policy)(policy.log_p_fn, params, state)
        self._round = int(saved["round"])


class AnalyticSource:
    """Analytic placements from different beginnings, each legalised."""

    def __init__(
        self,
        frame: ChipPlacement,
        weights: tuple[float, float, float],
        options: SourceOptions,
    ) -> None:
        self._frame, self._weights = frame, weights
        self._tables = make_tables(frame)
        self._room = make_room(self._tables, frame)
        self._seed, self._round = options.seed, 0
        self._patience = options.patience

    def propose(self) -> tuple[ChipPlacement | None, int]:
        """The next placement, and the steps of its descent."""
        tables, room, seed = self._tables, self._room, 1000 * self._seed + self._round
        self._round += 1
        spread = analytic(
            upright(self._frame, tables),
            tables,
            room,
            self._weights,
            seed,
            self._patience,
        )
        try:
            return legalize(spread, tables, room), STEPS
        except FloorplanError:  # this one cannot be packed; others may
            return None, STEPS

    def saved(self) -> dict[str, np.ndarray]:
        """The number of placements so far."""
        return {"round": np.array(self._round)}

    def restore(self, saved: dict[str, np.ndarray]) -> None:
        """Set all that `saved` gives."""
        self._round = int(saved["round"])


SOURCES = {"policy": PolicySource, "analytic": AnalyticSource}
"""Sources by the name of their stage."""
