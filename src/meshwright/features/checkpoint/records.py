"""Records of checkpoints: what was saved, what was restored, what was damaged."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Saved:
    """The record of one committed checkpoint, without its arrays.

    position: position in the training data, the JSON value that `save` was given.
    metrics: numbers by name. plan: JSON of the plan, which `mw.Plan.from_json` reads.
    saved_at: time in ISO 8601, UTC.
    arrays: dtype, shape and fingerprint of each array of the state, by its path.
    """

    step: int
    position: Any
    metrics: Mapping[str, float]
    plan: str | None
    saved_at: str
    arrays: Mapping[str, Mapping[str, Any]]

    def __str__(self) -> str:
        metrics = ", ".join(
            f"{name} {value:.6g}" for name, value in self.metrics.items()
        )
        parts = [f"step {self.step}", f"saved {self.saved_at}"]
        parts += [f"{len(self.arrays)} arrays", *([metrics] if metrics else [])]
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class Skipped:
    """A checkpoint that could not be restored, and the reason."""

    step: int
    reason: str

    def __str__(self) -> str:
        return f"step {self.step}: {self.reason}"


@dataclass(frozen=True, slots=True, eq=False)
class Restored:
    """The state and the record that were read from a checkpoint.

    state: the saved state, in the structure and the shardings that were asked for.
    saved: the checkpoint's record. skipped: newer checkpoints that are damaged.
    """

    state: Any
    saved: Saved
    skipped: tuple[Skipped, ...] = ()

    @property
    def step(self) -> int:
        """The step at which the state was saved."""
        return self.saved.step

    @property
    def position(self) -> Any:
        """The position in the training data at which the state was saved."""
        return self.saved.position

    @property
    def metrics(self) -> Mapping[str, float]:
        """The metrics that were saved with the state."""
        return self.saved.metrics

    @property
    def plan(self) -> str | None:
        """JSON of the plan, which `mw.Plan.from_json` reads; `None` if none was given."""
        return self.saved.plan

    def __str__(self) -> str:
        lines = [
            f"restored {self.saved}",
            *(f"skipped {each}" for each in self.skipped),
        ]
        return "\n".join(lines)

    __repr__ = __str__
