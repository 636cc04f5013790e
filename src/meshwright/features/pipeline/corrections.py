"""Corrections of prices by stages that were built with the same strategy.

The planner prices blocks of the whole step, and adds them up to stages. A built stage is
simulated as it is: its layers are written out, or stay a loop, on all of its devices. The
ratios of both correct the prices of this strategy in further searches.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from meshwright.features.pipeline.planning.pipeline_stage import PipelineStage
from meshwright.features.pipeline.planning.stage_costs import LayerCosts, StageOption
from meshwright.features.pipeline.planning.stage_mesh import MODEL
from meshwright.partitioner.tactics import Tactic

type StageKind = tuple[tuple[Tactic, ...], int, bool]
"""Tactics, size of the axis "model", and whether a stage is the only one.

The loops over layers of a single stage stay, and those of several stages are unrolled.
"""

type StagePair = tuple[PipelineStage, PipelineStage]
"""A stage with its prices, and the same stage as built."""


@dataclass(frozen=True, slots=True)
class Correction:
    """Ratios of what built stages take to their prices."""

    forward: float = 1.0
    backward: float = 1.0
    once: float = 1.0
    state: float = 1.0
    activations: float = 1.0
    working: float = 1.0

    def applied(self, costs: LayerCosts) -> LayerCosts:
        """The costs of layers, corrected."""
        forward, inputs, weights = costs.seconds
        phases = forward * self.forward, inputs * self.backward, weights * self.backward
        seconds = costs.seconds.copy()
        seconds[:] = phases
        return replace(
            costs,
            seconds=seconds,
            once_s=costs.once_s * self.once,
            fixed=costs.fixed * self.state,
            saved=costs.saved * self.activations,
            stacked=costs.stacked * self.working,
            working=costs.working * self.working,
        )

    def after(self, earlier: Correction) -> Correction:
        """The correction that has the effect of an earlier one and then of this one."""
        return Correction(
            self.forward * earlier.forward,
            self.backward * earlier.backward,
            self.once * earlier.once,
            self.state * earlier.state,
            self.activations * earlier.activations,
            self.working * earlier.working,
        )


class Corrections:
    """The corrections of all kinds of stages that were built on a machine.

    num_devices: number of the machine's devices.
    """

    def __init__(self, num_devices: int) -> None:
        self.num_devices = num_devices
        self._found: dict[StageKind, Correction] = {}

    def corrected(self, option: StageOption) -> StageOption:
        """An option with costs as stages of its kind had once they were built."""
        strategy = option.priced.strategy
        kind = strategy.tactics, strategy.model, option.size == self.num_devices
        found = self._found.get(kind)
        return replace(option, costs=found.applied(option.costs)) if found else option

    def learn(
        self, priced: Sequence[PipelineStage], built: Sequence[PipelineStage]
    ) -> None:
        """Correct prices from now on by the stages of a pipeline that was built."""
        pairs: defaultdict[StageKind, list[StagePair]] = defaultdict(list)
        for planned, stage in zip(priced, built, strict=True):
            assert planned.choice is not None, "the planner has chosen all stages"
            model = dict(planned.mesh.sizes).get(MODEL, 1)
            kind = planned.choice.tactics, model, len(priced) == 1
            pairs[kind].append((planned, stage))
        for kind, each in pairs.items():
            earlier = self._found.get(kind, Correction())
            self._found[kind] = _correction(each).after(earlier)


def _correction(pairs: Sequence[StagePair]) -> Correction:
    """The ratios of sums over stages.

    The working memory is that of the stage that needs most of all beside its price.
    """

    def ratio(of: Sequence[tuple[float, float]]) -> float:
        priced, built = (sum(each) for each in zip(*of, strict=True))
        return built / priced if priced > 0 and built > 0 else 1.0

    def backward_s(stage: PipelineStage) -> float:
        return stage.times.total_s - stage.times.forward_s

    state = ratio([(p.bytes.state, b.bytes.state) for p, b in pairs])
    kept = ratio([(p.bytes.activations, b.bytes.activations) for p, b in pairs])
    working = 0.0
    for planned, stage in pairs:
        sizes = planned.bytes
        held = stage.bytes.state + stage.bytes.activations + stage.bytes.working
        rest = held - state * sizes.state - kept * sizes.activations
        working = max(working, rest / sizes.working if sizes.working > 0 else 1.0)
    return Correction(
        ratio([(p.times.forward_s, b.times.forward_s) for p, b in pairs]),
        ratio([(backward_s(p), backward_s(b)) for p, b in pairs]),
        ratio([(p.once_s, b.once_s) for p, b in pairs]),
        state,
        kept,
        working,
    )
