"""Tunes the layouts of blocks on TPUs, and writes the figures of all of them.

    python -m benchmarks tune tune_layouts --chips tpu-v5e,tpu-v6e --budget 60 [BLOCK ...]

Needs the TPU compiler (`meshwright[tpu]`), and no TPU. Every verdict is kept in a journal,
so that an interrupted run goes on; blocks with a result are skipped.
"""

import json
import math
import time
from pathlib import Path

import meshwright as mw
from benchmarks import places
from benchmarks.harness import Options, benchmark, option
from benchmarks.tune.layout_blocks import BLOCKS, SMALLER, window_attention
from meshwright.features.tune.tune_layouts import on_one_device, tune_layouts

RESULTS = places.RESULTS / "tune_layouts.json"


def sharded():
    """A step over 8 chips, whose device program is tuned on its local shapes."""
    fn, args = window_attention(batch=32).step()
    return mw.partition(fn, {"data": 8}, [mw.data_parallel("data")]).plan(*args)


def program_of(name):
    """The lowered program of a block, or of the sharded plan."""
    if name == "sharded":
        return sharded().decided
    return on_one_device(*{**BLOCKS, **SMALLER}[name]().step())


def tune_block(name, chip, options):
    """The figures of one block on one chip."""
    start_s = time.perf_counter()
    tuned = tune_layouts(
        program_of(name),
        chip,
        options.budget,
        options.seed,
        journal=options.journals / f"{name}-{chip}.jsonl",
        show=lambda text: print(f"{name} {chip}: {text}", flush=True),
    )
    print(tuned, flush=True)
    return {
        **json.loads(tuned.to_json()),
        "speed_up": tuned.speed_up,
        "seconds": round(time.perf_counter() - start_s, 1),
    }


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


@benchmark(
    option("blocks", nargs="*", default=[]),
    option("--chips", default="tpu-v5e,tpu-v6e"),
    option("--budget", type=int, default=60),
    option("--journals", type=Path, default=Path("out/layout_journals")),
    out=RESULTS,
    seed=0,
)
def main(options: Options):
    options.journals.mkdir(parents=True, exist_ok=True)
    for name in options.blocks or [*BLOCKS, "sharded"]:
        for chip in options.chips.split(","):
            key = f"{name} {chip}"
            known = options.stored({})
            if key not in known:
                figures = tune_block(name, chip, options)
                known = {**options.stored({}), key: figures}
                options.save(known)
    known = options.stored({})
    mean = geometric_mean([result["speed_up"] for result in known.values()])
    print(f"{len(known)} results, {mean:.3f}x")


def read(path):
    return json.loads(path.read_text()) if path.exists() else {}


if __name__ == "__main__":
    main()
