"""`route`: which multiplier computes which layer, and what it costs and saves."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from meshwright.errors import AcceleratorError
from meshwright.features.codesign.accelerator.approximate.chip import (
    ChipFigures,
    RoutedChip,
)
from meshwright.features.codesign.accelerator.approximate.library import LIBRARY
from meshwright.features.codesign.accelerator.approximate.multiplier import Multiplier
from meshwright.features.codesign.accelerator.approximate.quantised import (
    QuantisedNetwork,
)
from meshwright.features.codesign.accelerator.approximate.router import (
    LearnedRouter,
    pair_features,
)
from meshwright.features.codesign.accelerator.design.design import Design
from meshwright.search.trials import (
    Choice,
    Front,
    Goals,
    Space,
    Study,
    Trial,
    find_engine,
    run_trials,
)

_SLOWER = 1.05
"""Longest time of a routed chip, as a share of the exact chip's."""

_GOALS = Goals({"loss": "min", "power": "min", "area": "min"}, {"time": _SLOWER})

_STEADY = 0.01
"""Share of inputs beyond the allowed loss whose class a chosen routing may change. It keeps
routings out that lose on some inputs what they happen to gain on others."""


@dataclass(frozen=True, eq=False)
class RoutedNetwork:
    """The result of a search for a routing.

    multipliers: those to choose from, the exact one first. layers: names of the products.
    chosen: the multiplier of each. exact_accuracy, accuracy: of the integer network on the
    inputs of the search. figures: of the chip. front: all trials.
    """

    network: QuantisedNetwork
    multipliers: tuple[Multiplier, ...]
    layers: tuple[str, ...]
    chosen: tuple[Multiplier, ...]
    exact_accuracy: float
    accuracy: float
    figures: ChipFigures
    front: Front

    @property
    def curve(self) -> tuple[tuple[float, float, float], ...]:
        """Loss of accuracy, power and area of the trials that save most for their loss."""
        kept: list[tuple[float, float, float]] = []
        trials = [trial for trial in self.front.trials if trial.is_feasible]
        for trial in sorted(trials, key=lambda t: (t.costs[0], _spent(t))):
            loss, power, area = trial.costs
            if not kept or power + area < kept[-1][1] + kept[-1][2]:
                kept.append((loss, power, area))
        return tuple(kept)

    def accuracies_on(self, inputs: Any, labels: Any) -> tuple[float, float]:
        """Accuracy on other inputs, with the exact multiplier and with the chosen ones."""
        plain = [self.multipliers[0]] * len(self.layers)
        scores = (self.network(inputs, plain), self.network(inputs, self.chosen))
        exact, routed = (float((s.argmax(-1) == labels).mean()) for s in scores)
        return exact, routed

    def to_json(self) -> str:
        """The routing, its figures and the curve."""
        names = [multiplier.name for multiplier in self.chosen]
        data = {
            "routing": [list(pair) for pair in zip(self.layers, names, strict=True)],
            "exact_accuracy": self.exact_accuracy,
            "accuracy": self.accuracy,
            "power": self.figures.power,
            "area": self.figures.area,
            "time": self.figures.time,
            "arrays": dict(self.figures.arrays),
            "curve": [
                {"loss": loss, "power": power, "area": area}
                for loss, power, area in self.curve
            ],
        }
        return json.dumps(data, indent=2)


def route(  # noqa: PLR0913  an option each
    fn: Callable[..., Any],
    weights: Sequence[Any],
    inputs: Any,
    labels: Any,
    *,
    multipliers: Sequence[Multiplier] | None = None,
    design: Design | None = None,
    max_loss: float = 0.0,
    trials: int = 300,
    engine: str = "learned",
    seed: int = 0,
    journal: Path | None = None,
    on_trial: Callable[[Trial], None] = lambda trial: None,
) -> RoutedNetwork:
    """Search for the multiplier of each layer of `fn(*weights, inputs) -> scores`.

    labels: the right class of each input. multipliers: the exact one first; by default the
        signed library. design: the chip, whose arrays become 8-bit; by default `tpu-v3`.
    max_loss: loss of accuracy that the chosen routing may have. engine: "learned", or one
        of `search.trials.ENGINES`. journal: file of the trials, to go on with.
    """
    inputs, labels = _checked(inputs, labels)
    if not 0 <= max_loss <= 1:
        raise AcceleratorError(f"max_loss is {max_loss}; wanted 0 to 1")
    kinds = tuple(multipliers or (make(True) for make in LIBRARY.values()))
    network = QuantisedNetwork(fn, weights, inputs, kinds[0].signed)
    batch = jax.ShapeDtypeStruct((network.batch, *inputs.shape[1:]), inputs.dtype)
    chip = RoutedChip.of(
        design or Design.load("tpu-v3"), network.products, fn, (*weights, batch)
    )
    judge = _Judge(network, kinds, chip, inputs, labels)
    losses = judge.losses_alone()
    layers = range(len(network.products))
    space = Space({f"layer{i}": Choice(*(m.name for m in kinds)) for i in layers})
    learned = LearnedRouter(
        pair_features(
            chip.loads, losses, [(m.figures.power, m.figures.area) for m in kinds]
        )
    )
    study = Study(
        space,
        _GOALS,
        learned if engine == "learned" else find_engine(engine),
        seed,
        _first_routings(kinds, losses),
    )
    front = run_trials(study, judge, trials=trials, journal=journal, on_trial=on_trial)
    best = _best(front, max_loss)
    chosen = judge.routing(best.candidate)
    return RoutedNetwork(
        network,
        kinds,
        tuple(product.name for product in network.products),
        chosen,
        judge.exact_accuracy,
        judge.exact_accuracy - best.costs[0],
        chip.figures(chosen),
        front,
    )


class _Judge:
    """An evaluation: the loss of accuracy of a routing, and the chip's figures."""

    def __init__(
        self,
        network: QuantisedNetwork,
        kinds: Sequence[Multiplier],
        chip: RoutedChip,
        inputs: Any,
        labels: Any,
    ) -> None:
        self.network, self.chip = network, chip
        self.kinds = {multiplier.name: multiplier for multiplier in kinds}
        self.inputs, self.labels = inputs, labels
        self.plain = [kinds[0]] * len(network.products)
        scores = network(inputs, self.plain)
        if labels.min() < 0 or labels.max() >= scores.shape[-1]:
            raise AcceleratorError(
                f"labels from {labels.min()} to {labels.max()} for scores of "
                f"{scores.shape[-1]} classes; wanted 0 to {scores.shape[-1] - 1}"
            )
        self.exact = scores.argmax(-1)
        self.exact_accuracy = float((self.exact == labels).mean())

    def routing(self, candidate: Mapping[str, str]) -> tuple[Multiplier, ...]:
        """The multiplier of each layer."""
        return tuple(self.kinds[name] for name in candidate.values())

    def __call__(self, candidate: dict[str, str]) -> dict[str, float]:
        routing = self.routing(candidate)
        figures = self.chip.figures(routing)
        if not np.isfinite(figures.time):  # more kinds than arrays: nothing to run
            return {"loss": 1.0, "changed": 1.0, "power": 1.0, "area": 1.0, "time": 1e9}
        classes = self.network(self.inputs, routing).argmax(-1)
        return {
            "loss": self.exact_accuracy - float((classes == self.labels).mean()),
            "changed": float((classes != self.exact).mean()),
            "power": figures.power,
            "area": figures.area,
            "time": figures.time,
        }

    @property
    def identity(self) -> dict[str, str]:
        """A digest that tells the network, its tables and its inputs from others."""
        found = hashlib.sha256(repr(self.chip.design.chip).encode())
        tables = [multiplier.table for multiplier in self.kinds.values()]
        for array in (self.inputs, self.labels, *self.network.weights, *tables):
            found.update(np.ascontiguousarray(array).tobytes())
        return {"network": found.hexdigest()[:16]}

    def losses_alone(self) -> list[list[float]]:
        """Share of inputs [L, A] that change class if one layer has another multiplier."""
        found: list[list[float]] = []
        for layer in range(len(self.plain)):
            row: list[float] = []
            for multiplier in self.kinds.values():
                routing = list(self.plain)
                routing[layer] = multiplier
                is_plain = multiplier is self.plain[layer]
                classes = (
                    self.exact
                    if is_plain
                    else self.network(self.inputs, routing).argmax(-1)
                )
                row.append(float((classes != self.exact).mean()))
            found.append(row)
        return found


def _first_routings(
    kinds: Sequence[Multiplier], losses: Sequence[Sequence[float]]
) -> list[dict[str, str]]:
    """Routings to begin with: all layers alike, and the cheapest of small loss alone."""
    found = [[m.name] * len(losses) for m in kinds]
    order = sorted(range(len(kinds)), key=lambda a: kinds[a].figures.power)
    for limit in (0.0, 0.002, 0.005, 0.01, 0.02, 0.05):
        cheapest = [next(a for a in order if row[a] <= limit) for row in losses]
        found.append([kinds[a].name for a in cheapest])
    named = [{f"layer{i}": name for i, name in enumerate(names)} for names in found]
    return [each for i, each in enumerate(named) if each not in named[:i]]


def _best(front: Front, max_loss: float) -> Trial:
    """The feasible trial of largest saving within the allowed loss."""
    allowed = [
        trial
        for trial in front.trials
        if trial.is_feasible
        and trial.costs[0] <= max_loss
        and trial.values["changed"] <= max_loss + _STEADY
    ]
    return min(allowed, key=lambda trial: (_spent(trial), trial.number))


def _spent(trial: Trial) -> float:
    """Power and area together."""
    return trial.costs[1] + trial.costs[2]


def _checked(inputs: Any, labels: Any) -> tuple[Any, Any]:
    inputs, labels = np.asarray(inputs), np.asarray(labels)
    if len(inputs) != len(labels) or not len(inputs) or labels.ndim != 1:
        raise AcceleratorError(
            f"inputs of shape {inputs.shape} and labels of shape {labels.shape}; wanted "
            "[N, ...] and [N], with N of 1 or more"
        )
    if labels.dtype.kind not in "iu":
        raise AcceleratorError(f"labels of type {labels.dtype}; wanted whole numbers")
    if inputs.dtype.kind == "f" and not np.isfinite(inputs).all():
        raise AcceleratorError("inputs have numbers that are not finite")
    return inputs, labels
