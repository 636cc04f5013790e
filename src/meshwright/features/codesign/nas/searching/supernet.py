"""Weight sharing: one net that holds every candidate of a space, trained once for all.

Each step trains the path of a random candidate (Guo et al., "Single Path One-Shot NAS",
ECCV 2020); afterwards a candidate's accuracy with the shared weights is a proxy of that
which it reaches by a training of its own. How well it ranks is printed beside the result
of a search, as for other proxies.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from meshwright.errors import SearchError
from meshwright.features.codesign.nas.searching.training import (
    Data,
    accuracy_of,
    quick_compilation,
    read_data,
)
from meshwright.learn.optimizers import adam_start, adam_step
from meshwright.search.trials import Candidate, Space
from meshwright.search.trials.space.coding import Coding, Draws

SHARED = "shared_accuracy"
"""The figure of a candidate with shared weights."""


@dataclass(frozen=True)
class Supernet:
    """An evaluation by shared weights: `Supernet(...)(candidate)["shared_accuracy"]`.

    init: from a random key and inputs to the parameters of all choices.
    apply: from parameters, inputs and a candidate's code to outputs. The code is an array,
        one number for each gene in the order of the space: the position of an option, or
        the value of a range. It is traced, so that one compilation serves all candidates:
        `jax.lax.switch(code[0].astype(int), branches, params, x)` takes a branch, and
        `x * (jnp.arange(x.shape[-1]) < code[1])` leaves so many channels.
    data: as of `nas.Trained`. steps, batch, rate, seed: of the training, by Adam.

    It has no other state than parameters, so that norms over the batch are not for it. The
    net is trained when the first candidate is evaluated.
    """

    space: Space
    init: Callable[[Any, Any], Any]
    apply: Callable[[Any, Any, Any], Any]
    data: Data | Callable[[], Data]
    steps: int = 1000
    batch: int = 32
    rate: float = 0.01
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("steps", "batch"):
            if type(getattr(self, name)) is not int or getattr(self, name) < 1:
                raise SearchError(
                    f"{name} is {getattr(self, name)!r}; wanted 1 or more"
                )

    def __call__(self, candidate: Candidate, fidelity: float = 1.0) -> dict[str, float]:
        """The accuracy of a candidate on the test data, with the shared weights."""
        code = Coding.of(self.space).code_of(candidate).astype(np.float32)
        apply, weights = self._applied, self.weights
        return {SHARED: accuracy_of(lambda x: apply(weights, x, code), self._arrays)}

    @cached_property
    def _arrays(self) -> Data:
        return read_data(self.data)

    @cached_property
    def _applied(self) -> Callable[..., Any]:
        return jax.jit(self.apply, compiler_options=quick_compilation())

    @cached_property
    def weights(self) -> Any:
        """The parameters after training; equal for equal seeds."""
        rng = np.random.default_rng(self.seed)
        draws = Draws(self.space, rng, 1)
        inputs, labels = self._arrays[:2]
        jit = partial(jax.jit, compiler_options=quick_compilation())
        step = jit(partial(_step, self))
        params = jit(self.init)(jax.random.key(self.seed), inputs[:1])
        state, loss = (params, adam_start(params)), np.float32(0)
        for number in range(self.steps):
            code = draws.random().astype(np.float32)
            at = rng.integers(len(inputs), size=self.batch)
            state, loss = step(state, np.float32(number), code, inputs[at], labels[at])
        if not np.isfinite(loss):
            raise FloatingPointError(
                f"the supernet's loss is {loss} after {self.steps} steps"
            )
        return state[0]

    def __getstate__(self) -> dict[str, Any]:
        """The fields, and weights that are trained already, for worker processes."""
        return {k: v for k, v in self.__dict__.items() if k not in _LOCAL}


_LOCAL = ("_applied", "_arrays")
"""What each process makes for itself."""


def _step(
    net: Supernet, state: Any, number: Any, code: Any, x: Any, y: Any
) -> tuple[Any, Any]:
    """The state after a step on one candidate's path, and the loss.

    Parameters off the path have gradients of 0. They stay, and so do their moments.
    """
    params, moments = state

    def loss_of(params: Any) -> Any:
        scores = jax.nn.log_softmax(net.apply(params, x, code).astype(jnp.float32))
        return -jnp.take_along_axis(scores, y[..., None], axis=-1).mean()

    loss, grads = jax.value_and_grad(loss_of)(params)
    rate = net.rate * 0.5 * (1 + jnp.cos(jnp.pi * number / net.steps))
    moved, (count, *after) = adam_step(params, moments, grads, rate)
    on_path = jax.tree.map(lambda g: (g != 0).any(), grads)

    def kept(new: Any, old: Any) -> Any:
        return jax.tree.map(jnp.where, on_path, new, old)

    first, second = map(kept, after, moments[1:])
    return (kept(moved, params), (count, first, second)), loss
