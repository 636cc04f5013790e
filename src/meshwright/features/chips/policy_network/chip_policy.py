"""A policy with its parameters, and the file that holds it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from meshwright.errors import LearnedError
from meshwright.features.chips.policy_network.inputs import PolicyInputs
from meshwright.features.chips.policy_network.network import (
    init_policy,
    move_log_probabilities,
)
from meshwright.features.tune.learned.graph_arrays import GraphArrays
from meshwright.features.tune.learned.network import Params


@dataclass(frozen=True, slots=True, eq=False)
class ChipPolicy:
    """The network's parameters, and the state of Adam: step count and both moments."""

    params: Params
    state: Any

    @classmethod
    def new(cls, seed: int) -> ChipPolicy:
        """An untrained policy. Its moves have the probabilities of its inputs' prior."""
        params = init_policy(jax.random.key(seed))
        zeros = jax.tree.map(jnp.zeros_like, params)
        return cls(params, (jnp.zeros(()), zeros, zeros))

    def move_probabilities(self, inputs: PolicyInputs) -> NDArray[np.float64]:
        """Probabilities [N, 3] that an op moves to the chip before, stays, or moves on."""
        log_p = self.log_probabilities(*inputs.padded())
        return np.exp(log_p.astype(np.float64))[: len(inputs.features)]

    def log_probabilities(
        self, graph: GraphArrays, prior: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """Log probabilities [N, 3] of the moves of each op, for padded inputs."""
        return np.asarray(_jitted(self.params, graph, prior))

    def save(self, path: Path) -> None:
        """Write the policy to a file; an interruption leaves no partial file."""
        leaves = jax.tree.leaves((self.params, self.state))
        partial = path.with_name(path.name + ".partial")
        with partial.open("wb") as file:
            np.savez_compressed(file, *map(np.asarray, leaves))
        os.replace(partial, path)

    @classmethod
    def load(cls, path: Path) -> ChipPolicy:
        """Read a policy from a file that `save` wrote."""
        form = cls.new(0)
        wanted, tree = jax.tree.flatten((form.params, form.state))
        try:
            with np.load(path, allow_pickle=False) as arrays:
                leaves = [arrays[f"arr_{i}"] for i in range(len(wanted))]
        except (OSError, KeyError, ValueError) as fault:
            raise LearnedError(f"{path} is no policy for chips ({fault})") from fault
        shapes = [np.shape(leaf) for leaf in wanted]
        if [leaf.shape for leaf in leaves] != shapes:
            raise LearnedError(f"{path} is a policy of another network: train again")
        return cls(*jax.tree.unflatten(tree, leaves))


_jitted: Any = jax.jit(move_log_probabilities)


@cache
def shipped_policy() -> ChipPolicy:
    """The shipped policy: the untrained prior, on which training has not improved yet."""
    file = resources.files("meshwright.features.chips.policy_network") / "shipped.npz"
    with resources.as_file(file) as path:
        return ChipPolicy.load(path)
