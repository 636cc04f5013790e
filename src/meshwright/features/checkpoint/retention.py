"""The retention policy: which checkpoints are kept when a new one is committed."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from meshwright.errors import CheckpointError
from meshwright.features.checkpoint.orbax_import import import_orbax

MODES = ("min", "max")
"""Whether the lowest or the highest value of a metric is best."""


@dataclass(frozen=True, slots=True)
class Retention:
    """The retention policy; a checkpoint is kept if one of its three rules keeps it.

    keep: number of newest checkpoints to keep; `None` for all.
    every: a checkpoint whose step is a multiple of this number is kept for good; `None`
        for no such rule.
    best: number of best checkpoints by `metric` to keep. A checkpoint without the
        metric, or with NaN, is never one of them.
    mode: "min" if the lowest metric is best, "max" if the highest is.
    """

    keep: int | None
    every: int | None
    best: int
    metric: str
    mode: str

    def __post_init__(self) -> None:
        for name, least in (("keep", 1), ("every", 1), ("best", 0)):
            number = getattr(self, name)
            if number is None and name != "best":
                continue
            if (
                isinstance(number, bool)
                or not isinstance(number, int)
                or number < least
            ):
                allowed = " or None" if name != "best" else ""
                raise CheckpointError(
                    f"{name} is {number!r}; wanted {least} or more{allowed}"
                )
        if self.mode not in MODES:
            raise CheckpointError(
                f"mode is {self.mode!r}; wanted 'min' (lowest is best) or 'max'"
            )

    def __str__(self) -> str:
        if self.keep is None:
            return "all"
        parts = [f"last {self.keep}"]
        parts += [] if self.every is None else [f"every {self.every} steps"]
        parts += [f"best {self.best} by {self.mode} {self.metric}"] if self.best else []
        return ", ".join(parts)

    def score(self, metrics: Mapping[str, Any] | None) -> float:
        """The metric as a number that is higher for better checkpoints.

        It is -inf if the metric is missing or NaN.
        """
        value = float((metrics or {}).get(self.metric, math.nan))
        if math.isnan(value):
            return -math.inf
        return value if self.mode == "max" else -value

    def policy(self) -> Any:
        """The policy as an object of Orbax, which deletes accordingly."""
        policies = import_orbax().checkpoint_managers
        chosen = [policies.LatestN(self.keep), _Best(self)]  # all, if `keep` is None
        if self.every is not None:
            chosen.append(policies.EveryNSteps(self.every))
        return policies.AnyPreservationPolicy(chosen)


@dataclass(frozen=True, slots=True)
class _Best:
    """An Orbax policy that keeps the best checkpoints by a metric.

    Orbax's own `BestN` also keeps checkpoints without the metric.
    """

    retention: Retention

    def should_preserve(
        self, checkpoints: Sequence[Any], *, context: Any
    ) -> Sequence[bool]:
        """Whether to keep each checkpoint; of equally good ones, the newest wins."""
        del context
        scores = [self.retention.score(each.metrics) for each in checkpoints]
        known = [i for i, score in enumerate(scores) if score > -math.inf]
        ranked = sorted(known, key=lambda i: (scores[i], i), reverse=True)
        best = set(ranked[: self.retention.best])
        return [i in best for i in range(len(checkpoints))]
