"""A small network whose outputs correct a heuristic."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshwright.errors import PolicyError


@dataclass(frozen=True, slots=True, eq=False)
class Correction:
    """A hidden layer of tanh beside a direct linear part; letters: F inputs, O outputs.

    weights: all weights in one vector: direct [F, O], first [F, H], bias [H], last [H, O].
    """

    inputs: int
    hidden: int
    outputs: int
    weights: NDArray[np.float32]

    def __post_init__(self) -> None:
        wanted = self.size(self.inputs, self.hidden, self.outputs)
        if self.weights.shape != (wanted,):
            raise PolicyError(
                f"a policy has weights of shape {self.weights.shape}; wanted {wanted}"
            )
        if not np.isfinite(self.weights).all():
            raise PolicyError("a policy has weights that are no finite numbers")

    @staticmethod
    def size(inputs: int, hidden: int, outputs: int) -> int:
        """The number of weights."""
        return inputs * outputs + inputs * hidden + hidden + hidden * outputs

    @classmethod
    def start(cls, inputs: int, hidden: int, outputs: int, seed: int) -> "Correction":
        """A network whose outputs are 0, and whose hidden layer has random weights."""
        weights = np.zeros(cls.size(inputs, hidden, outputs), np.float32)
        direct = inputs * outputs
        draws = np.random.default_rng(seed).normal(size=inputs * hidden)
        weights[direct : direct + inputs * hidden] = draws / np.sqrt(inputs)
        return cls(inputs, hidden, outputs, weights)

    def __call__(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """Corrections [N, O] of inputs [N, F]."""
        f, h, o = self.inputs, self.hidden, self.outputs
        ends = np.cumsum([f * o, f * h, h])
        direct, first, bias, last = np.split(self.weights, ends)
        inner = np.tanh(x @ first.reshape(f, h) + bias)
        return x @ direct.reshape(f, o) + inner @ last.reshape(h, o)
