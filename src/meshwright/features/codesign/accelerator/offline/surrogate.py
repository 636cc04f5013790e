"""A trained surrogate: its training with checkpoints, and what it says of designs.

The checkpoint is the one that ranks held-out designs best: Kendall's tau between predicted
merit and logged runtime, infeasible designs as the slowest.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshwright.errors import AcceleratorError
from meshwright.features.codesign.accelerator.offline.conservative import (
    STEPS,
    Conservatism,
    TrainingArrays,
    scores_of,
    start_training,
)
from meshwright.features.codesign.accelerator.offline.network import init_network
from meshwright.features.codesign.accelerator.offline.training_set import (
    Designs,
    TrainingSet,
)
from meshwright.learn.arrays import (
    numbered_leaves,
    read_arrays,
    restored_tree,
    save_arrays,
)
from meshwright.learn.layers import Params
from meshwright.learn.ranking import kendall_tau
from meshwright.learn.training import (
    CurvePoint,
    ModelCheckpoints,
    TrainingSchedule,
    TrainingState,
    train_epochs,
)

_CALLS = 4
"""Calls of `STEPS` steps in an epoch."""

_AREA_QUANTILE = 0.99
"""Share of held-out designs near the cap whose area the margin has to cover."""


@dataclass(frozen=True, slots=True)
class Training:
    """What decides how a surrogate is trained, beside its logs.

    steps: rounded up to whole epochs of 100 steps. area_mm2: the cap.
    """

    area_mm2: float
    weights: Conservatism
    steps: int
    seed: int

    @property
    def schedule(self) -> TrainingSchedule:
        """The epochs and the learning rate."""
        epochs = math.ceil(self.steps / (STEPS * _CALLS))
        return TrainingSchedule(self.seed, epochs, learning_rate=1e-3, warmup=0.05)


@dataclass(frozen=True, slots=True, eq=False)
class DesignSurrogate:
    """A trained network with the scales of its logs.

    tau: Kendall's tau on held-out designs, by application.
    area_margin: added to the predicted log area, so that of 100 held-out designs near the
        cap about one has a larger area.
    """

    params: Params
    data: TrainingSet
    tau: Mapping[str, float]
    area_margin: float
    curve: tuple[CurvePoint, ...]

    def scores(
        self, genes: NDArray[np.int64], context: NDArray[np.float32]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Merits [B] of designs [B, G] in a context [C], and their areas in mm2 [B].

        The areas contain the margin.
        """
        merit, area = scores_of(self.params, genes, context)
        scale = self.data.areas
        logs = (area + self.area_margin).astype(np.float64)
        return merit.astype(np.float64), np.exp(logs * scale.deviation + scale.mean)

    def runtime_ms(self, merit: float, application: str) -> float:
        """The predicted runtime of a merit for an application that was learned."""
        scale = self.data.runtimes[self.data.names.index(application)]
        return math.exp(scale.mean - merit * scale.deviation)


def train_surrogate(
    data: TrainingSet,
    training: Training,
    checkpoints: ModelCheckpoints | None = None,
    on_epoch: Callable[[CurvePoint], None] = lambda point: None,
) -> DesignSurrogate:
    """Train on logs; a checkpoint that exists is continued, with the same result."""
    arrays = TrainingArrays.of(data, training.area_mm2, training.weights)
    params = init_network(training.seed, data.contexts.shape[1])
    start = TrainingState(params, start_training(params, data))
    best = params
    key = _key(data, training)
    if checkpoints is not None and checkpoints.path.exists():
        start, best = _restored(checkpoints.path, key, start)
    schedule, score = training.schedule, _score_fn(data, training.seed)

    def step(
        params: Params, state: Any, example: int, epoch: int, rate: float, random: Any
    ) -> Any:
        del example, epoch
        return arrays.step(params, state, rate, random)

    progress = start
    for progress in train_epochs(start, range(_CALLS), schedule, step, score):
        point = progress.curve[-1]
        earlier = [p.valid_score for p in progress.curve[:-1]]
        if point.valid_score >= np.nanmax([-1.0, *earlier]):
            best = progress.params
        best = {**best, "area": progress.params["area"]}  # it is trained on its own
        on_epoch(point)
        if checkpoints is not None and checkpoints.is_due(point.epoch, schedule.epochs):
            _save(checkpoints.path, key, progress, best)
    margin = _area_margin(best, data, training.area_mm2)
    return DesignSurrogate(
        best, data, _taus(best, data, training.seed), margin, progress.curve
    )


def _score_fn(data: TrainingSet, seed: int) -> Callable[[Params], float]:
    def score(params: Params) -> float:
        return float(np.mean(list(_taus(params, data, seed).values())))

    return score


def _taus(params: Params, data: TrainingSet, seed: int) -> dict[str, float]:
    """Kendall's tau on held-out designs, as many infeasible ones as feasible."""
    found: dict[str, float] = {}
    for number, name in enumerate(data.names):
        rows = data.held_out.rows(data.held_out.application == number)
        ranked = _balanced(rows, seed)
        merit, _ = scores_of(params, ranked.genes, data.contexts[number])
        worst = np.nan_to_num(ranked.merit, nan=-np.inf)
        found[name] = kendall_tau(-merit, -worst)
    return found


def _balanced(rows: Designs, seed: int) -> Designs:
    good, bad = (np.flatnonzero(np.isnan(rows.merit) == is_bad) for is_bad in (0, 1))
    bad = np.random.default_rng([seed, 1]).permutation(bad)[: len(good)]
    return rows.rows(np.concatenate([good, bad]))


def _area_margin(params: Params, data: TrainingSet, area_mm2: float) -> float:
    """The error of the predicted log area that few held-out designs near the cap exceed."""
    cap = data.areas.apply(np.log(np.array([area_mm2])))[0]
    near = np.abs(data.held_out.log_area - cap) < math.log(2)  # not for NaN
    known = data.held_out.rows(near)
    if not len(known.genes):
        return 0.0
    _, guessed = scores_of(params, known.genes, data.contexts[known.application])
    return max(0.0, float(np.quantile(known.log_area - guessed, _AREA_QUANTILE)))


def _key(data: TrainingSet, training: Training) -> str:
    """A text that differs for other logs or another training."""
    figures: dict[str, Any] = {
        "applications": data.names,
        "designs": np.bincount(data.learned.application).tolist(),
        "sum": float(np.nansum(data.learned.merit.astype(np.float64))),
        "training": repr(training),
    }
    return json.dumps(figures)


def _save(path: Path, key: str, progress: TrainingState, best: Params) -> None:
    curve = [(p.epoch, p.loss, p.valid_score) for p in progress.curve]
    whole = progress.params, progress.state, best
    arrays = {"key": np.array(key), "curve": np.array(curve)}
    save_arrays(path, {**arrays, **numbered_leaves("leaf_", whole)})


def _restored(
    path: Path, key: str, start: TrainingState
) -> tuple[TrainingState, Params]:
    arrays = read_arrays(path)
    if "key" not in arrays or str(arrays["key"]) != key:
        raise AcceleratorError(
            f"{path} is of a training with other logs or options: remove it, or give "
            "another --out"
        )
    form = start.params, start.state, start.params
    params, state, best = restored_tree(form, arrays, "leaf_", path)
    curve = tuple(
        CurvePoint(int(e), loss, s) for e, loss, s in arrays["curve"].tolist()
    )
    return TrainingState(params, state, curve), best
