"""Divergence of a training: steps whose loss, gradients or parameters are not finite."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from meshwright.errors import MeshwrightError
from meshwright.features.train.recipes.recipe import OnNan

WATCHED = ("loss", "gradient_norm", "parameter_norm")
"""The metrics of a step that are finite unless the training diverges."""

_MOST_SKIPPED = 100
"""Steps in a row whose update may be left out; a run that learns nothing then ends."""


class DivergedError(MeshwrightError):
    """A training has diverged, and ends after its last good checkpoint."""


@dataclass(slots=True)
class Watch:
    """Watches the metrics of all steps, in order.

    saved: step of the last checkpoint, which is good; 0 if there is none.
    """

    on_nan: OnNan
    folder: Path
    saved: int
    _skipped: int = 0

    def look_at(self, number: int, row: Mapping[str, float]) -> str | None:
        """A line about a step whose update was left out; `None` for a good step.

        Raises `DivergedError` if the run must not go on.
        """
        if all(math.isfinite(row[name]) for name in WATCHED):
            self._skipped = 0
            return None
        self._skipped += 1
        numbers = ", ".join(f"{name} {row[name]:.4g}" for name in WATCHED)
        if self.on_nan is OnNan.SKIP and self._skipped <= _MOST_SKIPPED:
            return f"step {number}: {numbers}; its update is left out"
        raise DivergedError(
            f"step {number}: {numbers}. {self._last_good()} Lower the learning rate, or "
            f"check the data{self._other_way()}"
        )

    def _last_good(self) -> str:
        if self.on_nan is OnNan.SKIP:
            return f"The updates of {self._skipped} steps in a row were left out."
        if not self.saved:
            return f"The run ends; {self.folder} has no checkpoint before."
        return (
            f"The run ends; the last checkpoint in {self.folder} is from step "
            f"{self.saved}, and --resume goes on after it."
        )

    def _other_way(self) -> str:
        if self.on_nan is OnNan.SKIP:
            return ""
        return '; on_nan = "skip" in [run] leaves out the updates of such steps'
