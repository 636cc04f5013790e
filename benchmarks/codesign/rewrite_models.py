"""Small models with subgraphs replaced: fewer FLOPs at no loss, by alphaNAS and ablations.

    python -m benchmarks codesign rewrite_models [--trials 200] [--seeds 0,1,2]
        [--models resnet,vit,efficientnet] [--methods properties] [--until 40]

Every search of a model of `small_models.py`, by a method and from a seed, goes on by
`--round` trials in turn, so that all of them have equally many trials whenever the run is
ended. The journals are in `--journals`; a run that was ended goes on from them. After each
round the cheapest acceptable model's share of the original's cost is stored. When all have
`--trials` trials (or with `--until` that many), the cheapest model is found that is as good
as the original in the mean of three trainings which the search did not see.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.codesign import small_models
from benchmarks.harness import STORED, Options, benchmark, option
from benchmarks.places import ROOT
from meshwright.codesign import nas
from meshwright.features.codesign.nas.rewriting.lineages import acceptable
from meshwright.features.codesign.nas.rewriting.rewrite import tried_rewrites
from meshwright.features.codesign.nas.rewriting.search import (
    RewriteProblem,
    cost_function,
)
from meshwright.search.trials import Trial

MODELS = ("resnet", "vit", "efficientnet")
METHODS = ("properties", "enumeration", "mutation")


def cheapest(trials: Sequence[Trial]) -> dict[str, float]:
    """The share of the cost left by the cheapest acceptable trial, and failed trials.

    acceptable: the mean score is at most one standard error below the original's;
        `judged` trains again.
    """
    costs = [trial.values["cost"] for trial in acceptable(trials)]
    failed = sum(bool(trial.reason) for trial in trials)
    share = min(costs) / trials[0].values["cost"]
    return {"cost_share": round(share, 4), "failed": failed}


def judged(
    task: nas.Task, method: str, less: str, trials: int, seed: int, folder: Path
) -> dict[str, float]:
    """The share of the cost that is left, and the scores beside those of the original."""
    found = nas.rewrite(
        task, less=less, trials=trials, seed=seed, method=method, out=folder
    )
    first = found.models[0] if found.models else found.original
    return {
        "cost_share": round(first.cost / found.original.cost, 4),
        "test": round(first.test, 4),
        "original_test": round(found.original.test, 4),
        "found": len(found.models),
    }


@benchmark(
    option("--trials", type=int, default=200),
    option("--until", type=int, default=None, help="trials of this run; then judge"),
    option("--round", type=int, default=10, help="trials of a search in turn"),
    option("--seeds", default="0,1,2"),
    option("--less", default="flops"),
    option("--models", default=",".join(MODELS)),
    option("--methods", default=",".join(METHODS)),
    option("--journals", type=Path, default=ROOT / "out" / "rewrite_models"),
    out=STORED,
)
def main(chosen: Options) -> None:
    """Let all searches go on, and then judge what they found."""
    until = chosen.until or chosen.trials
    seeds = [int(seed) for seed in chosen.seeds.split(",")]
    models: list[str] = chosen.models.split(",")
    methods: list[str] = chosen.methods.split(",")
    runs = [(m, seed, method) for m in models for seed in seeds for method in methods]
    tasks = {model: getattr(small_models, model)() for model, _, _ in runs}
    cost = cost_function(chosen.less, None)
    problems = {
        run: RewriteProblem(tasks[run[0]], cost, run[2], run[1]) for run in runs
    }
    figures: dict[str, Any] = chosen.stored({"searches": {}, "judged": {}})
    for count in range(chosen.round, until + 1, chosen.round):
        for (model, seed, method), problem in problems.items():
            name = f"{model} {method} {chosen.less} {seed}"
            found = figures["searches"].setdefault(name, {})
            if str(count) not in found:
                folder = chosen.journals / name.replace(" ", "_")
                found[str(count)] = cheapest(tried_rewrites(problem, count, folder))
                chosen.save(figures)
            print(name, count, found[str(count)], flush=True)
    for model, seed, method in runs:
        name = f"{model} {method} {chosen.less} {seed}"
        found = figures["judged"].setdefault(name, {})
        if str(until) not in found:
            folder = chosen.journals / name.replace(" ", "_")
            task = tasks[model]
            found[str(until)] = judged(task, method, chosen.less, until, seed, folder)
            chosen.save(figures)
        print(name, until, found[str(until)], flush=True)


if __name__ == "__main__":
    main()
