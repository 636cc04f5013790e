"""Small models with subgraphs replaced: fewer FLOPs at no loss, by alphaNAS and ablations.

    python -m benchmarks codesign rewrite_models [--trials 60] [--seeds 0,1,2]

For each model of `small_models.py`, method and seed of the search, the cheapest model that
is as good as the original in the mean of three trainings which the search did not see.
"""

from benchmarks.codesign import small_models
from benchmarks.harness import STORED, Options, benchmark, option
from meshwright.codesign import nas

MODELS = ("resnet", "vit", "efficientnet")
METHODS = ("properties", "enumeration", "mutation")


def best(
    model: str, method: str, less: str, trials: int, seed: int
) -> dict[str, float]:
    """The share of the cost that is left, and the scores beside those of the original."""
    task = getattr(small_models, model)()
    found = nas.rewrite(task, less=less, trials=trials, seed=seed, method=method)
    first = found.models[0] if found.models else found.original
    return {
        "cost_share": round(first.cost / found.original.cost, 4),
        "test": round(first.test, 4),
        "original_test": round(found.original.test, 4),
        "found": len(found.models),
    }


@benchmark(
    option("--trials", type=int, default=60),
    option("--seeds", default="0,1,2"),
    option("--less", default="flops"),
    option("--models", default=",".join(MODELS)),
    out=STORED,
)
def main(chosen: Options) -> None:
    """Print a row for each search, and store it."""
    rows = chosen.stored({"rows": {}})["rows"]
    for model in chosen.models.split(","):
        for method in METHODS:
            for seed in map(int, chosen.seeds.split(",")):
                name = f"{model} {method} {chosen.less} {chosen.trials} {seed}"
                if name not in rows:
                    rows[name] = best(model, method, chosen.less, chosen.trials, seed)
                    chosen.save({"rows": rows})
                print(name, rows[name], flush=True)


if __name__ == "__main__":
    main()
