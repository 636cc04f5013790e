"""Misses of eviction policies beside libcachesim's on the same requests.

    python -m benchmarks policies cache_libcachesim TRACE... [--form int32-big]

Needs `libcachesim` 0.3.5 (GPL; for this comparison only). Each trace is run at shares of
its working set by both programs, and so are three generated traces. The figures are the
misses and missed bytes of both, and the greatest difference as a share.
"""

from pathlib import Path
from typing import Any

from benchmarks.harness import STORED, Options, benchmark, option
from meshwright.policies import (
    Trace,
    read_trace,
    scan_trace,
    simulate,
    video_trace,
    zipf_trace,
)

THEIRS = {
    "fifo": "FIFO",
    "lru": "LRU",
    "arc": "ARC",
    "s3fifo": "S3FIFO",
    "sieve": "Sieve",
    "gdsf": "GDSF",
    "2q": "TwoQ",
}
"""Names of the policies in libcachesim."""


def their_misses(requests: Trace, capacity: int, policy: str) -> tuple[int, int]:
    """Misses and missed bytes by libcachesim."""
    import libcachesim  # pyright: ignore[reportMissingImports]

    cache: Any = getattr(libcachesim, THEIRS[policy])(cache_size=capacity)
    request: Any = libcachesim.Request()
    misses = missed = 0
    pairs = zip(requests.ids.tolist(), requests.sizes.tolist(), strict=True)
    for time, (each, size) in enumerate(pairs):
        request.obj_id, request.obj_size, request.clock_time = each + 1, size, time
        if not cache.get(request):
            misses += 1
            missed += size
    return misses, missed


@benchmark(
    option("traces", type=Path, nargs="*"),
    option("--form", default="text"),
    option("--shares", default="1,5,10"),
    option("--most", type=int, default=1_000_000, help="requests of a trace"),
    out=STORED,
)
def main(chosen: Options) -> None:
    """Compare on each trace, and store the figures."""
    figures = chosen.stored({})
    traces = [
        read_trace(path, form=chosen.form, changed="separate") for path in chosen.traces
    ]
    if not traces:
        traces = [
            zipf_trace(100_000, 10_000, 0),
            scan_trace(100_000, 5_000, 0),
            video_trace(100_000, 1_000, 0),
        ]
    for requests in traces:
        most = chosen.most
        part = Trace(
            requests.ids[:most],
            requests.sizes[:most],
            requests.times[:most],
            requests.tags[:most],
            requests.name,
        )
        rows: dict[str, Any] = {}
        for share in chosen.shares.split(","):
            capacity = max(1, int(float(share) / 100 * part.working_set))
            for policy in THEIRS:
                result = simulate(part, capacity, policy)
                ours = result.misses, result.missed_bytes
                theirs = their_misses(part, capacity, policy)
                off = max(abs(a - b) / b for a, b in zip(ours, theirs, strict=True))
                rows[f"{share} % {policy}"] = {
                    "misses": ours[0],
                    "their_misses": theirs[0],
                    "missed_bytes": ours[1],
                    "their_missed_bytes": theirs[1],
                    "difference": round(off, 6),
                }
        figures[requests.name] = rows
        worst = max(rows, key=lambda name: rows[name]["difference"])
        print(requests.name, "at most", rows[worst]["difference"], "for", worst)
        chosen.save(figures)


if __name__ == "__main__":
    main()
