"""`Recovery`: a record of the times when a cluster's workers were lost, and their cost."""

import time
from dataclasses import dataclass, field

from meshwright.app.output.numbers import show_seconds, show_share
from meshwright.errors import ClusterError


@dataclass(slots=True)
class WorkerLoss:
    """One event in which a training run lost its workers.

    step: the last step that was known to be done.
    at_s: time of the loss (`time.monotonic`).
    saved: the step of the checkpoint from which the run continued.
    seconds: time from the loss until `step` was done again; None before that.
    """

    step: int
    reason: str
    at_s: float
    saved: int | None = None
    seconds: float | None = None

    def __str__(self) -> str:
        took = "" if self.seconds is None else f", {show_seconds(self.seconds)} lost"
        goes_on = "" if self.saved is None else f", went on after step {self.saved}"
        return f"lost at step {self.step} ({self.reason}){goes_on}{took}"


@dataclass(slots=True)
class Recovery:
    """All worker losses of a training run.

    retries: number of losses in a row, without a new checkpoint between them, that the run
        survives.
    """

    retries: int
    losses: list[WorkerLoss] = field(default_factory=list[WorkerLoss])
    _started_s: float = field(default_factory=time.monotonic)
    _step: int = 0

    def lose(self, error: ClusterError, at_s: float) -> None:
        """Record a loss of the workers.

        Raises the error again if there were too many losses since the last checkpoint.
        at_s: time of the loss (`time.monotonic`).
        """
        text = str(error)
        self.losses.append(WorkerLoss(self._step, f"{text:.200}", at_s))
        latest = [loss.saved for loss in self.losses[-self.retries - 1 : -1]]
        if len(latest) == self.retries and len(set(latest)) == 1:
            raise ClusterError(
                f"the workers were lost {self.retries + 1} times since step {latest[0]} "
                f"was saved; the last time: {text}"
            ) from error

    def resume(self, saved: int) -> None:
        """Record that the run continues from the checkpoint of step `saved`."""
        for loss in self.losses:
            if loss.saved is None:
                loss.saved = saved

    def reach(self, step: int) -> None:
        """Record that a step is done.

        Lost time counts until the step that was reached before the loss is done again.
        """
        self._step = max(self._step, step)
        for loss in self.losses:
            if loss.seconds is None and step >= loss.step:
                loss.seconds = time.monotonic() - loss.at_s

    @property
    def goodput(self) -> float:
        """The share of the run's time that was not lost with its workers."""
        now_s = time.monotonic()
        lost_s = last_s = 0.0
        for loss in self.losses:  # losses may overlap
            end_s = now_s if loss.seconds is None else loss.at_s + loss.seconds
            lost_s += max(0.0, end_s - max(last_s, loss.at_s))
            last_s = max(last_s, end_s)
        return 1 - lost_s / max(now_s - self._started_s, 1e-9)

    def __str__(self) -> str:
        if not self.losses:
            return "no loss of workers"
        lines = [str(loss) for loss in self.losses]
        return "\n".join([*lines, f"goodput {show_share(self.goodput)}"])
