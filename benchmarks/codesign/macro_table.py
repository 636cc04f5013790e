"""The table of all models of `macro_space`: what a search of it would measure, at once."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.codesign.macro_space import KINDS, SPACE
from meshwright.search.trials import Front, Goals, Request, Trial, TrialOutcome

TABLE = Path(__file__).with_name("digits_table.csv")
MACHINES = ("tpu-v5e", "v100", "cpu")
STEPS = ("30", "60", "90")
"""Steps of training after which the accuracy was measured."""
NUM_SEEDS = 3


@cache
def figures_by_model() -> dict[str, dict[str, float]]:
    """Figures of each model, accuracies as means over the seeds of training."""
    with TABLE.open(newline="") as file:
        rows = list(csv.DictReader(file))
    found: dict[str, dict[str, float]] = {}
    for row in rows:
        names = ("parameters", "macs", *MACHINES)
        figures = {name: float(row[name]) for name in names}
        model = found.setdefault(row["model"], figures)
        for name in (f"accuracy_{step}" for step in STEPS):
            share = float(row[name]) / NUM_SEEDS
            model[name] = model.get(name, 0.0) + share
    return found


@dataclass(frozen=True, slots=True)
class TableLookup:
    """An evaluation that looks a candidate up: accuracy, and latency on a machine."""

    machine: str = "tpu-v5e"

    @property
    def goals(self) -> Goals:
        """Accuracy against latency."""
        return Goals({"accuracy": "max", "latency_s": "min"}, {})

    def __call__(
        self, candidate: dict[str, Any], fidelity: float = 1.0
    ) -> dict[str, float]:
        digits = (str(KINDS.index(kind)) for kind in candidate.values())
        row = figures_by_model()["".join(digits)]
        step = min(STEPS, key=lambda each: abs(int(each) - fidelity * int(STEPS[-1])))
        return {
            "accuracy": row[f"accuracy_{step}"],
            "latency_s": row[self.machine],
            "parameters": row["parameters"],
            "macs": row["macs"],
        }

    @property
    def reference(self) -> dict[str, float]:
        """The worst accuracy and latency of the table."""
        rows = figures_by_model().values()
        return {
            "accuracy": min(row[f"accuracy_{STEPS[-1]}"] for row in rows),
            "latency_s": max(row[self.machine] for row in rows),
        }

    def whole_front(self) -> Front:
        """The front of all models."""
        trials = [
            Trial.of(Request(i, candidate), TrialOutcome(self(candidate)), self.goals)
            for i, candidate in enumerate(SPACE.values())
        ]
        return Front(self.goals, tuple(trials), "exhausted")
