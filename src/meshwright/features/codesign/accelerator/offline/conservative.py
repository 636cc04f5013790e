"""Steps that train a conservative surrogate, with negatives found against it.

The loss is PRIME's: the squared error on feasible designs, plus the merit that the
surrogate gives to negatives and to infeasible designs, which so goes down. Negatives are
designs that it overestimates the most likely. A pool of them is kept, and each step
improves it against the current parameters as the optimiser would: within the area.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from meshwright.features.codesign.accelerator.offline.network import (
    COUNTS,
    OWNERS,
    STARTS,
    doubt_of,
    expected_of,
    log_area_of,
    merit_code,
    merit_of,
    one_hot,
)
from meshwright.features.codesign.accelerator.offline.training_set import (
    Designs,
    TrainingSet,
)
from meshwright.learn.layers import Params
from meshwright.learn.optimizers import adam_start, adam_step

BATCH = 256
"""Feasible designs in a step, as in PRIME."""

_PUSHED = 128
"""Infeasible designs in a step, and negatives in the pool."""

STEPS = 25
"""Steps that are compiled into one call."""

_RESTARTS = 8
"""Negatives that each step starts again from logged designs."""

_FLIPS = 2
"""Parameters of a negative that one step changes, one after the other."""

_FLOOR = -2.0
"""Merit, in standard deviations, below which nothing is pushed down further."""

_AREA_RATE = 100.0
"""Learning rate of the area, relative to the merit's: its model is much simpler."""

_OVER_AREA = 20.0
"""What a negative loses for each unit of log area above the cap."""


@dataclass(frozen=True, slots=True)
class Conservatism:
    """The weights of what pushes the surrogate down.

    negatives: of its merit of designs that it overestimates. infeasible: of its merit of
        designs that are infeasible. Both 0 make a plain regression.
    """

    negatives: float = 0.02
    infeasible: float = 0.02


def start_training(params: Params, data: TrainingSet) -> Any:
    """The state before the first step: of Adam, and the pool of negatives."""
    feasible = data.learned.feasible
    places = np.arange(_PUSHED) % len(feasible.genes)
    return (
        adam_start(params["merit"]),
        adam_start(params["area"]),
        jnp.array(feasible.genes[places]),
        jnp.array(feasible.application[places]),
    )


@dataclass(frozen=True, slots=True, eq=False)
class TrainingArrays:
    """The designs to learn from, for compiled steps.

    sized: those of known area. log_area_cap: less the logs' mean.
    """

    feasible: Designs
    infeasible: Designs
    sized: Designs
    contexts: Any
    log_area_cap: float
    weights: Conservatism

    @classmethod
    def of(
        cls, data: TrainingSet, area_mm2: float, weights: Conservatism
    ) -> TrainingArrays:
        cap = data.areas.apply(np.log(np.array([area_mm2])))
        learned = data.learned
        sized = learned.rows(~np.isnan(learned.log_area))
        if not len(sized.genes):  # published logs without areas: all count as the mean
            sized = replace(learned, log_area=np.zeros_like(learned.log_area))
        return cls(
            learned.feasible, learned.infeasible, sized, data.contexts, float(cap[0]),
            weights,
        )  # fmt: skip

    def step(
        self, params: Params, state: Any, rate: float, random: np.random.Generator
    ) -> tuple[Params, Any, float]:
        """Parameters, state and loss after `STEPS` steps on random batches."""
        good, bad = self.feasible, self.infeasible
        chosen = random.integers(len(good.genes), size=(STEPS, BATCH))
        rows: list[Any] = [good.genes[chosen], good.application[chosen]]
        rows.append(good.merit[chosen])
        if len(bad.genes):
            chosen = random.integers(len(bad.genes), size=(STEPS, _PUSHED))
        else:  # nothing is infeasible: the weight below is 0
            bad, chosen = good, chosen[:, :_PUSHED]
        rows += [bad.genes[chosen], bad.application[chosen]]
        sized = self.sized
        chosen = random.integers(len(sized.genes), size=(STEPS, BATCH))
        rows += [sized.genes[chosen], sized.log_area[chosen]]
        noise = random.gumbel(size=(STEPS, _FLIPS, _PUSHED, STARTS[-1]))
        weights = (
            self.weights.negatives,
            self.weights.infeasible if len(self.infeasible.genes) else 0.0,
        )
        call = _make_steps()
        params, state, losses = call(
            params, state, tuple(rows), noise.astype(np.float32), self.contexts,
            (np.float32(self.log_area_cap), np.float32(rate), *map(np.float32, weights)),
        )  # fmt: skip
        return params, state, float(losses.mean())


@cache
def _make_steps() -> Any:
    """Compile several steps of training."""

    @jax.jit
    def steps(
        params: Params, state: Any, rows: Any, noise: Any, contexts: Any, numbers: Any
    ) -> Any:
        cap, rate, *weights = numbers

        def one(carry: Any, drawn: Any) -> tuple[Any, Any]:
            params, (adam, area_adam, genes, owners) = carry
            batch, noise = drawn
            genes = genes.at[:_RESTARTS].set(batch[0][:_RESTARTS])
            owners = owners.at[:_RESTARTS].set(batch[1][:_RESTARTS])
            for each in noise:
                genes = improved(params, genes, contexts[owners], cap, each)
            merit, area = params["merit"], params["area"]
            loss, grads = jax.value_and_grad(_loss)(
                merit, batch[:5], (genes, owners), contexts, weights
            )
            merit, adam = adam_step(merit, adam, grads, rate)
            grads = jax.grad(_area_loss)(area, *batch[5:])
            area, area_adam = adam_step(area, area_adam, grads, _AREA_RATE * rate)
            params = {"merit": merit, "area": area}
            # The oldest move to the front, where the next step starts some again.
            pool = jnp.roll(genes, -_RESTARTS, 0), jnp.roll(owners, -_RESTARTS, 0)
            return (params, (adam, area_adam, *pool)), loss

        (params, state), losses = jax.lax.scan(one, (params, state), (rows, noise))
        return params, state, losses

    return steps


def improved(params: Params, genes: Any, context: Any, cap: Any, noise: Any) -> Any:
    """Designs with the value changed that the surrogate's gradient says gains the most.

    noise: added to the gain of each value, relative to the largest, [B, V].
    """

    def worth(hot: Any) -> Any:
        over = jax.nn.relu(log_area_of(params["area"], hot) - cap)
        return (merit_of(params["merit"], hot, context) - _OVER_AREA * over).sum()

    hot = one_hot(genes)
    slope = jax.grad(worth)(hot)
    own = jnp.take_along_axis(slope, genes + jnp.array(STARTS[:-1]), axis=1)
    gain = jnp.where(hot > 0, -jnp.inf, slope - own[:, OWNERS])
    scale = jnp.abs(slope).mean(axis=1, keepdims=True)
    best = jnp.argmax(gain + 0.3 * scale * noise, axis=1)
    owner = jnp.array(OWNERS)[best]
    value = best - jnp.array(STARTS)[owner]
    return genes.at[jnp.arange(len(genes)), owner].set(value)


def _loss(
    merit: Params, batch: Sequence[Any], negatives: Any, contexts: Any, weights: Any
) -> Any:
    """Squared errors on feasible designs, and the merit of what is pushed down."""
    genes, owners, wanted, bad, bad_owners = batch
    code = merit_code(merit, one_hot(genes), contexts[owners])
    error = ((expected_of(merit, code) - wanted) ** 2).mean()
    false_doubt = (doubt_of(merit, code) ** 2).mean()
    pushed = _doubted(merit, one_hot(negatives[0]), contexts[negatives[1]])
    refused = _doubted(merit, one_hot(bad), contexts[bad_owners])
    push = weights[0] * pushed.mean() + weights[1] * refused.mean()
    return error + false_doubt + push


def _doubted(merit: Params, hot: Any, context: Any) -> Any:
    """Merit of designs that only their doubt can lower, down to a floor."""
    code = jax.lax.stop_gradient(merit_code(merit, hot, context))
    expected = jax.lax.stop_gradient(expected_of(merit, code).mean(axis=0))
    return jnp.maximum(expected - doubt_of(merit, code), _FLOOR)


def _area_loss(area: Params, genes: Any, log_area: Any) -> Any:
    return ((log_area_of(area, one_hot(genes)) - log_area) ** 2).mean()


def scores_of(
    params: Params, genes: NDArray[np.int64], context: NDArray[np.float32]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Merit and relative log area of designs [B, G] for contexts [C] or [B, C]."""
    size = max(BATCH, 1 << (len(genes) - 1).bit_length())  # few different shapes
    padded = np.zeros((size, len(COUNTS)), np.int64)
    padded[: len(genes)] = genes
    contexts = np.zeros((size, context.shape[-1]), np.float32)
    contexts[: len(genes)] = context
    merit, area = _make_scores()(params, padded, contexts)
    return np.asarray(merit)[: len(genes)], np.asarray(area)[: len(genes)]


@cache
def _make_scores() -> Any:
    @jax.jit
    def scores(params: Params, genes: Any, context: Any) -> Any:
        hot = one_hot(genes)
        return merit_of(params["merit"], hot, context), log_area_of(params["area"], hot)

    return scores
