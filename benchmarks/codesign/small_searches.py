"""Models found for a TPU and a CPU on three small tasks, beside a hand-made model each.

    python -m benchmarks codesign small_searches [--tasks digits] [--trials 12]

A search sees the mean of three trainings of each model, on validation data. The fastest of
its models that is as accurate there as the hand-made one is trained from three other seeds;
if it is less accurate in their mean, the next fastest follows. What is printed is the
accuracy on test data after trainings from three further seeds, by which nothing was chosen.
Models are trained once for all searches.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.codesign.small_tasks import TASKS, SmallTask
from benchmarks.harness import STORED, Options, benchmark, option
from meshwright.codesign import nas
from meshwright.search.trials import Front

ENGINES: Mapping[str, Any] = {
    "gp": nas.GaussianProcess(initial=4, batch=1),
    "random": nas.RandomDraws(),
}
MACHINES = ("tpu-v5e", "cpu")
_MOST_CONFIRMED = 6
"""Models of a search that are trained again, at most."""
OBJECTIVES = {"accuracy": "max", "latency_s": "min"}


@dataclass
class Evaluations:
    """Figures of the candidates of a task, each trained and priced once."""

    task: SmallTask
    known: dict[str, Any] = field(default_factory=dict)

    def _once(self, key: object, make: Any) -> Any:
        text = json.dumps(key)
        if text not in self.known:
            self.known[text] = make()
        return self.known[text]

    def latency(self, candidate: dict[str, Any], machine: str) -> float:
        """Predicted seconds of a call."""
        return self._once(
            [machine, candidate],
            lambda: nas.latency(*self.task.target(candidate), machine).seconds,
        )

    def searched(self, candidate: dict[str, Any], machine: str) -> dict[str, float]:
        """What a search sees."""
        found = self._once(candidate, lambda: dict(self.task.searched(candidate)))
        return {
            "accuracy": found["accuracy"],
            "latency_s": self.latency(candidate, machine),
        }

    def confirmed(self, candidate: dict[str, Any]) -> float:
        """Mean accuracy of trainings that no search sees."""
        return self._once(
            ["confirmed", candidate],
            lambda: self.task.confirmed(candidate)["accuracy"],
        )

    def judged(self, candidate: dict[str, Any]) -> float:
        """Mean accuracy on test data, of trainings by which nothing is chosen."""
        return self._once(
            ["judged", candidate], lambda: self.task.judged(candidate)["accuracy"]
        )


def fastest(evaluations: Evaluations, front: Front) -> dict[str, Any]:
    """The fastest model that loses nothing; the hand-made one if there is none."""
    hand, *_ = front.trials
    good = [
        trial
        for trial in front.trials
        if not trial.reason
        and trial.values["accuracy"] >= hand.values["accuracy"]
        and trial.values["latency_s"] < hand.values["latency_s"]
    ]
    least = evaluations.confirmed(hand.candidate)
    for trial in sorted(good, key=lambda t: t.values["latency_s"])[:_MOST_CONFIRMED]:
        if evaluations.confirmed(trial.candidate) >= least:
            return trial.candidate
    return hand.candidate


def row(
    evaluations: Evaluations, machine: str, engine: Any, trials: int, seed: int
) -> dict[str, Any]:
    """One search: how much faster its model is, and its accuracy beside the hand-made's."""
    hand = dict(evaluations.task.baseline)
    front = nas.search(
        evaluations.task.space,
        lambda candidate: evaluations.searched(candidate, machine),
        objectives=OBJECTIVES, engine=engine, trials=trials, seed=seed, first=(hand,),
    ).front  # fmt: skip
    found = fastest(evaluations, front)
    hand_s = evaluations.latency(hand, machine)
    volume = front.hypervolume({"accuracy": 0.0, "latency_s": hand_s})
    return {
        "faster": hand_s / evaluations.latency(found, machine),
        "accuracy": evaluations.judged(found),
        "hand_made_accuracy": evaluations.judged(hand),
        "hypervolume": volume / hand_s,
        "latency_us": {m: 1e6 * evaluations.latency(found, m) for m in MACHINES},
        "hand_made_us": {m: 1e6 * evaluations.latency(hand, m) for m in MACHINES},
        "found": found,
    }


@benchmark(
    option("--tasks", default=",".join(TASKS)),
    option("--machines", default=",".join(MACHINES)),
    option("--engines", default=",".join(ENGINES)),
    option("--trials", type=int, default=12),
    option("--seeds", type=int, default=3),
    out=STORED,
)
def main(options: Options) -> None:
    """Print and store a row for each search."""
    for name in options.tasks.split(","):
        evaluations = Evaluations(TASKS[name]())
        for machine in options.machines.split(","):
            for engine in options.engines.split(","):
                for seed in range(options.seeds):
                    found = row(
                        evaluations, machine, ENGINES[engine], options.trials, seed
                    )
                    case = f"{machine} {engine} {options.trials} {seed}"
                    options.save_case(name, case, found)


if __name__ == "__main__":
    main()
