"""What is searched: candidates of `lineages.py` as networks, with their figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

import jax

from meshwright.errors import NasError, did_you_mean
from meshwright.features.codesign.nas.cost.latency import latency
from meshwright.features.codesign.nas.rewriting.network import ModelProgram
from meshwright.features.codesign.nas.rewriting.propose import METHODS, propose
from meshwright.features.codesign.nas.rewriting.task import Task, TrainedWeights, train
from meshwright.machine import Machine

COSTS = ("flops", "parameters", "latency")
"""What there can be less of."""

_LEAST_GAIN = 0.99
"""Networks cost at most this share of the original, or they are not worth a trial."""


_LARGEST_STEP = 0.3
"""A child is first sought that saves a share of its parent's cost, drawn from 0 to this."""

_VERSION = 4
"""Of how draws become networks and networks scores; a journal of another one is refused."""

_CLEARLY_WORSE = 2
"""Standard errors of the original's score by which a first training is clearly worse."""


def cost_function(
    less: str, machine: Machine | str | Path | None
) -> Callable[[ModelProgram], float]:
    """The cost of a network: a count, or seconds of a batch on a machine."""
    if less not in COSTS:
        what = f"less is {less!r}{did_you_mean(less, COSTS)}"
        raise NasError(f"{what}; wanted one of {', '.join(COSTS)}")
    if (less == "latency") != (machine is not None):
        what = "with" if machine is not None else "without"
        raise NasError(
            f"less {less!r} {what} a machine; latency needs one, others none"
        )
    if machine is None:
        return lambda network: getattr(network, less)

    @cache
    def seconds(network: ModelProgram) -> float:
        *weights, x = (
            jax.ShapeDtypeStruct(v.shape, v.dtype) for v in network.program.inputs
        )
        return latency(network, (weights, x), machine).seconds

    return seconds


@dataclass(frozen=True, eq=False)
class RewriteProblem:
    """A task, the cost to lower, and the method that proposes replacements.

    seeds: trainings of the original, and of each network whose first training is hardly
        worse; means of them are compared.
    """

    task: Task
    cost: Callable[[ModelProgram], float]
    method: str = "properties"
    seed: int = 0
    seeds: int = 3
    known: dict[tuple[int, ...], ModelProgram | None] = field(
        default_factory=dict[tuple[int, ...], ModelProgram | None]
    )

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            what = f"method is {self.method!r}{did_you_mean(self.method, METHODS)}"
            raise NasError(f"{what}; wanted one of {', '.join(METHODS)}")
        self.known[()] = self.task.network()

    @property
    def original(self) -> ModelProgram:
        """The user's model."""
        network = self.known[()]
        assert network is not None, "the original was captured"
        return network

    @property
    def identity(self) -> str:
        """A text that differs for other models, trainings and costs."""
        task, network = self.task, self.original
        training = f"{task.steps} steps, batch {task.batch}, rate {task.rate}"
        size = f"{network.flops} FLOPs, {network.parameters} parameters"
        cost = f"cost {self.cost(network):g}, {self.seeds} seeds"
        return f"{size}, {training}, {cost}, version {_VERSION}"

    def network(self, draws: Sequence[int]) -> ModelProgram:
        """The network of a candidate; `NasError` if a draw finds nothing to replace."""
        key = tuple(draws)
        if key not in self.known:
            self.known[key] = self._child(self.network(key[:-1]), key[-1])
        network = self.known[key]
        if network is None:
            raise NasError(
                "no subgraph was found that can be replaced by a cheaper one"
            )
        return network

    def _child(self, parent: ModelProgram, draw: int) -> ModelProgram | None:
        """The parent with one subgraph replaced, at no more than its cost, if any is found.

        How much cheaper the child has to be is drawn, or most steps would be tiny. If no
        such child is found, any that costs no more is taken.
        """
        rng = Random(draw)
        most = min(self.cost(parent), _LEAST_GAIN * self.cost(self.original))
        found = self._cheaper(parent, (1 - rng.uniform(0, _LARGEST_STEP)) * most, rng)
        return found or self._cheaper(parent, most, rng)

    def _cheaper(
        self, parent: ModelProgram, most: float, rng: Random
    ) -> ModelProgram | None:
        return propose(parent, self.method, lambda n: self.cost(n) <= most, rng)

    def trainings(
        self, draws: Sequence[int], seeds: Sequence[int]
    ) -> Iterator[TrainedWeights]:
        """A candidate trained once from each seed, when it is asked for."""
        return train(self.task, self.network(draws), seeds)

    @cached_property
    def reference(self) -> list[TrainedWeights]:
        """The trainings of the original in the search, without their weights."""
        every = self.trainings((), range(self.seed, self.seed + self.seeds))
        return [replace(each, weights=[]) for each in every]

    def _search_trainings(self, draws: Sequence[int]) -> list[TrainedWeights]:
        """Trainings of a candidate, only the first one if that is clearly worse."""
        if not draws:
            return self.reference
        original = fmean(each.validation for each in self.reference)
        floor = original - _CLEARLY_WORSE * self.reference[0].error
        every = self.trainings(draws, range(self.seed, self.seed + self.seeds))
        first = next(every)
        return [first, *every] if first.validation >= floor else [first]

    def judged_figures(self, candidate: dict[str, Any]) -> dict[str, Any]:
        """Scores in the mean of trainings that the search does not use, and the cost.

        All verdicts hang on the original's, so its trainings in the search count, too.
        """
        draws = candidate["draws"]
        first = self.judging_seed
        every = [*self.trainings(draws, range(first, first + self.seeds))]
        every += [] if draws else self.reference
        return {
            "validation": fmean(each.validation for each in every),
            "test": fmean(each.test for each in every),
            "cost": self.cost(self.network(draws)),
        }

    @property
    def judging_seed(self) -> int:
        """The first of the seeds by which the best are judged in the end."""
        return self.seed + 1000

    def figures(self, candidate: dict[str, Any]) -> dict[str, Any]:
        """The figures of a trial: score on the validation data, its error, and costs."""
        draws = candidate["draws"]
        found = self._search_trainings(draws)
        network = self.network(draws)
        return {
            "score": fmean(each.validation for each in found),
            "error": found[0].error,
            "cost": self.cost(network),
            "flops": network.flops,
            "parameters": network.parameters,
        }
