"""Models with one subgraph replaced, by alphaNAS and its ablations: how many lose nothing.

    python -m benchmarks codesign rewrite_proposals [--count 40]
        [--models resnet,resnet_shapes,...] [--methods properties,enumeration,mutation]

A search depends on the models that it finds first. Here every trial replaces one subgraph
of the original, as the first trials of a search do, and is trained as in a search. For
each model of `small_models.py` and each method, `good` is the number of trials that score
at most one standard error less than the original, `saved_per_trial` the share of the FLOPs
that these save, as a mean over all trials, and `median_loss` the median of the score lost.
"""

from random import Random
from statistics import median
from typing import Any

from benchmarks.codesign import small_models
from benchmarks.codesign.rewrite_models import METHODS, MODELS
from benchmarks.harness import STORED, Options, benchmark, option
from meshwright.errors import NasError
from meshwright.features.codesign.nas.rewriting.search import (
    RewriteProblem,
    cost_function,
)

_EVERY = (*MODELS, *(f"{model}_shapes" for model in MODELS))


def proposals(model: str, method: str, count: int) -> dict[str, Any]:
    """The figures of `count` models with one subgraph replaced."""
    problem = RewriteProblem(
        getattr(small_models, model)(), cost_function("flops", None), method
    )
    rng = Random(f"{model} {method}")
    original = problem.figures({"draws": []})
    kept: list[float] = []
    lost: list[float] = []
    for _ in range(count):
        try:
            found = problem.figures({"draws": [rng.randrange(2**31)]})
        except NasError:  # not found, or training diverged
            continue
        lost.append(original["score"] - found["score"])
        if lost[-1] <= original["error"]:
            kept.append(found["cost"] / original["cost"])
    return {
        "trials": count,
        "good": len(kept),
        "saved_per_trial": round(sum(1 - share for share in kept) / count, 4),
        "median_loss": round(median(lost), 4),
    }


@benchmark(
    option("--count", type=int, default=40, help="replacements of each method"),
    option("--models", default=",".join(_EVERY)),
    option("--methods", default=",".join(METHODS)),
    out=STORED,
)
def main(options: Options) -> None:
    """Try what is missing, model by model."""
    figures: dict[str, Any] = options.stored({})
    models: list[str] = options.models.split(",")
    methods: list[str] = options.methods.split(",")
    for name, method in ((n, m) for n in models for m in methods):
        found = figures.setdefault(name, {})
        if method not in found or found[method]["trials"] != options.count:
            found[method] = proposals(name, method, options.count)
            options.save(figures)
        print(name, method, found[method], flush=True)


if __name__ == "__main__":
    main()
