"""Misses of eviction policies on traces, and requests a second of each.

    python -m benchmarks policies cache_misses TRACE... [--form int32-big] [--shares 1,5,10]

Each trace is run at shares of its working set, by all policies; ids whose size changes
count as separate objects. Printed are misses and missed bytes (both as shares), and
millions of requests per second of CPU time, without compilation.
"""

import time
from pathlib import Path

from benchmarks.harness import STORED, Options, benchmark, option
from meshwright.policies import POLICIES, Trace, least_misses, read_trace, simulate


def rows(requests: Trace, shares: list[float]) -> dict[str, dict[str, float]]:
    """The figures of a trace, by share and policy."""
    found: dict[str, dict[str, float]] = {}
    total = int(requests.sizes.sum())
    for share in shares:
        capacity = int(share / 100 * requests.working_set)
        for policy in POLICIES:
            before = time.process_time()
            result = simulate(requests, capacity, policy)
            spent_s = time.process_time() - before
            found[f"{share:g} % {policy}"] = {
                "miss_ratio": round(result.miss_ratio, 4),
                "byte_miss_ratio": round(result.byte_miss_ratio, 4),
                "requests_per_us": round(len(requests.ids) / spent_s / 1e6, 2),
            }
        misses, missed = least_misses(requests, capacity)
        found[f"{share:g} % at least"] = {
            "miss_ratio": round(misses / len(requests.ids), 4),
            "byte_miss_ratio": round(missed / total, 4),
        }
    return found


@benchmark(
    option("traces", type=Path, nargs="+"),
    option("--form", default="text"),
    option("--shares", default="1,5,10"),
    out=STORED,
)
def main(chosen: Options) -> None:
    """Print a table for each trace, and store the figures."""
    shares = [float(share) for share in chosen.shares.split(",")]
    figures = chosen.stored({})
    for path in chosen.traces:
        requests = read_trace(path, form=chosen.form, changed="separate")
        rows(requests, shares[:1])  # compiles the policies
        figures[requests.name] = rows(requests, shares)
        print(f"{requests}\n\n| cache, policy | misses | bytes | M requests/s |")
        print("|---|---|---|---|")
        for name, row in figures[requests.name].items():
            cells = [row["miss_ratio"], row["byte_miss_ratio"]]
            print(
                f"| {name} | {cells[0]} | {cells[1]} | {row.get('requests_per_us', '')} |"
            )
    chosen.save(figures)


if __name__ == "__main__":
    main()
