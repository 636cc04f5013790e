"""The monitor of a training run: times the steps, writes metrics, and shows progress."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from meshwright.app.output.numbers import show_count, show_seconds, show_share
from meshwright.app.plan import Plan
from meshwright.features.train.divergence import Watch
from meshwright.features.train.metrics import Writer
from meshwright.features.train.recovery import Recovery
from meshwright.features.train.runners.run_step import Metrics
from meshwright.features.train.runners.runner import Runner


def rates(plan: Plan, examples: int, step_s: float) -> dict[str, float]:
    """Examples and tokens per second, and the MFU, of a step of `step_s` seconds.

    MFU is the model FLOP utilisation; its product with the seconds of a step does not
    depend on the speed. It is left out if the plan has no figures.
    examples: number of examples in a batch.
    """
    row = {"step_s": step_s, "examples_per_s": examples / step_s}
    if plan.tokens_per_step is not None:
        row["tokens_per_s"] = plan.tokens_per_step / step_s
    if plan.figures is not None:
        row["mfu"] = plan.mfu * plan.step_time_s / step_s
    return row


class Monitor:
    """Collects the metrics of a training run, and fetches them from the devices in groups.

    Fetching waits for the devices, so that it happens only every few steps. Each process of
    a run has a monitor; only the first process prints and writes.
    latest: metrics of the last step that was fetched.
    evaluated: loss of the last evaluation. watch: what looks for divergence.
    """

    def __init__(
        self,
        runner: Runner,
        writers: list[Writer],
        rates_of: Callable[[float], dict[str, float]],
        every: int,
        recovery: Recovery,
        watch: Watch,
    ) -> None:
        """Begin without any step.

        rates_of: a function from the seconds of a step to its rates.
        every: number of steps between two fetches of metrics from the devices.
        """
        self.latest: dict[str, float] = {}
        self.evaluated: float | None = None
        self.watch = watch
        self._runner, self._writers, self._rates_of = runner, writers, rates_of
        self._every = every
        self._recovery = recovery
        self._waiting: list[tuple[int, Metrics]] = []
        self._since: float | None = None
        console = Console(stderr=True)
        self._is_shown = runner.is_first and console.is_terminal
        self._bar = Progress(
            TextColumn("step {task.completed}/{task.total}"),
            BarColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.description}"),
            console=console,
            disable=not self._is_shown,
        )
        self._task = self._bar.add_task("")
        self._lines = console

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._bar.stop()
        for writer in self._writers:
            writer.close()

    def begin(self, done: int, steps: int) -> None:
        """Start the progress display at `done` of `steps` steps."""
        self._bar.update(self._task, completed=done, total=steps)

    def step(self, number: int, metrics: Metrics) -> None:
        """Add the metrics of a step, which the devices may still be computing.

        Step times count from the end of the first step, which includes compilation.
        """
        self._waiting.append((number, metrics))
        if number % self._every == 0 or self._since is None:
            self.fetch()

    def fetch(self) -> None:
        """Wait for the devices to finish all steps so far, and write their metrics.

        Raises `DivergedError` if the training has diverged.
        """
        if not self._waiting:
            return
        numbers, handles = zip(*self._waiting, strict=True)
        rows = list(zip(numbers, self._runner.values(handles), strict=True))
        now = time.perf_counter()
        if self._since is not None:
            rows[-1][1].update(self._rates_of((now - self._since) / len(rows)))
        self._waiting, self._since = [], now
        for number, row in rows:
            for writer in self._writers:
                writer.write(number, row)
            skipped = self.watch.look_at(number, row)
            if skipped is not None:
                self.say(skipped)
        self.latest = rows[-1][1]
        self._recovery.reach(rows[-1][0])
        self._show(rows[-1][0], self.latest)

    def flush(self) -> None:
        """Hand all metrics so far to the operating system, for readers of the files."""
        for writer in self._writers:
            writer.flush()

    def note(self, number: int, row: Mapping[str, float]) -> None:
        """Write further metrics of a step, such as the evaluation loss."""
        for writer in self._writers:
            writer.write(number, row)
        self._show(number, row)

    def say(self, text: str) -> None:
        """Print a line on stderr, in the first process only."""
        if self._runner.is_first:
            self._lines.print(text, highlight=False, markup=False, soft_wrap=True)

    def skip_time(self) -> None:
        """Exclude the time since the last fetch from step times.

        It is called after work that is no step, such as saving a checkpoint.
        """
        self._since = time.perf_counter()

    def _show(self, number: int, row: Mapping[str, float]) -> None:
        text = show_row(row)
        if self._is_shown:
            self._bar.update(self._task, completed=number, description=text)
        else:
            self.say(f"step {number}: {text}")


_SHOWN: dict[str, Any] = {
    "loss": lambda x: f"loss {x:.4f}",
    "evaluation_loss": lambda x: f"evaluation loss {x:.4f}",
    "step_s": lambda x: f"{show_seconds(x)} a step",
    "tokens_per_s": lambda x: f"{show_count(x)} tokens/s",
    "examples_per_s": lambda x: f"{show_count(x)} examples/s",
    "mfu": lambda x: f"MFU {show_share(x)}",
}


def show_row(row: Mapping[str, float]) -> str:
    """The main metrics of a step in one line.

    Tokens per second replace examples per second if they are known.
    """
    hidden = "examples_per_s" if "tokens_per_s" in row else ""
    shown = [show(row[n]) for n, show in _SHOWN.items() if n in row and n != hidden]
    return ", ".join(shown)
