"""Costs of collectives in Alpa's search: closed forms on a logical mesh.

Zheng et al., "Alpa: Automating Inter- and Intra-Operator Parallelism for Distributed Deep
Learning" (OSDI 2022), and its code. Each mesh axis has a cost alpha per start and a cost
beta per byte. A small constant for each kind breaks ties: if two ways move as many bytes,
the one with an all-gather is chosen last. Costs have no unit; `predict.links.collective`
has seconds. These forms reproduce Alpa's published plans in docs/alpa.md; no search of
Meshwright reads them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from meshwright.errors import MachineError

FORMS: dict[str, tuple[Callable[[int], float], float]] = {
    "all_gather": (lambda n: (n - 1) / n, 0.1),
    "all_reduce": (lambda n: 2 * (n - 1) / n, 0.01),
    "all_to_all": (lambda n: (n - 1) / n**2 * (n / 2), 0.001),
    "reduce_scatter": (lambda n: (n - 1) / n, 0.001),
}
"""By kind: the share of the bytes that each of n devices sends, and the tie-breaker. The
factor n / 2 is Alpa's penalty on all-to-alls."""


@dataclass(frozen=True, slots=True)
class AlphaBeta:
    """A logical mesh with the costs of its axes.

    shape: devices along each axis. alphas, betas: cost of a start and of a byte, per axis.
    """

    shape: tuple[int, ...]
    alphas: tuple[float, ...]
    betas: tuple[float, ...]

    def __post_init__(self) -> None:
        if not len(self.shape) == len(self.alphas) == len(self.betas) > 0:
            raise MachineError(
                f"mesh {self.shape} wants an alpha and a beta for each axis; got "
                f"{self.alphas} and {self.betas}"
            )
        if min(self.shape) < 1 or min(*self.alphas, *self.betas) < 0:
            raise MachineError(f"sizes are at least 1 and costs at least 0 in {self}")

    def cost(self, kind: str, num_bytes: float, axis: int) -> float:
        """The cost of one collective along an axis.

        num_bytes: bytes of the gathered result, of the operand that is reduced, or of all
            that the devices of the axis exchange together.
        """
        if kind not in FORMS:
            raise MachineError(f"no cost for {kind!r}; there are {', '.join(FORMS)}")
        share, tie = FORMS[kind]
        moved = share(self.shape[axis]) * num_bytes
        return self.alphas[axis] + self.betas[axis] * moved + tie

    def flat(self) -> AlphaBeta:
        """The mesh with all axes as one, with the largest alpha and the smallest beta.

        Alpa chooses these, since a ring can be laid so that few of its hops leave the fast
        axis.
        """
        size = math.prod(self.shape)
        return AlphaBeta((size,), (max(self.alphas),), (min(self.betas),))
