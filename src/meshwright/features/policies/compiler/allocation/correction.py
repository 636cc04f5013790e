"""Linear corrections of a heuristic's logarithms."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshwright.errors import PolicyError


@dataclass(frozen=True, slots=True, eq=False)
class PowerCorrection:
    """Numbers added to logarithms: linear in features, so that it multiplies by powers.

    weights: [F, O], of F inputs and O outputs.
    """

    weights: NDArray[np.float32]

    def __post_init__(self) -> None:
        if not np.isfinite(self.weights).all():
            raise PolicyError("a policy has weights that are no finite numbers")

    def __call__(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """Corrections [N, O] of inputs [N, F]."""
        return x @ self.weights
