"""The reward of platform-aware search: accuracy times a power of the relative latency."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from meshwright.errors import SearchError


@dataclass(frozen=True, slots=True)
class Reward:
    """accuracy * (latency / target)^w (Tan et al., CVPR 2019; Li et al., CVPR 2021).

    w: -0.07 in MnasNet, -0.09 in EfficientNet-X. Called with figures, it gives minus the
        reward, a cost for `nas.Scalarised(engine, Reward(0.008))`.

    >>> round(Reward(0.01).of({"accuracy": 0.8, "latency_s": 0.02}), 4)
    0.7621
    """

    target_s: float
    w: float = -0.07

    def __post_init__(self) -> None:
        if not self.target_s > 0 or self.w > 0:
            raise SearchError(f"{self}: wanted a target above 0 s, and w of at most 0")

    def of(self, figures: Any) -> float:
        """The reward of a model's figures."""
        return figures["accuracy"] * (figures["latency_s"] / self.target_s) ** self.w

    def __call__(self, figures: Any) -> float:
        return -self.of(figures)
