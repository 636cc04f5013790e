"""Whether layouts tuned on a CPU are ever slower than the default, measured anew.

    taskset -c 1 python -m benchmarks tune tune_cpu_layouts [--budget 10] [PROGRAM ...]

Tunes small programs for "xla-cpu". Then the tuned and the plain function run in turn in
this process, which the search did not use; also where no layout was chosen, as calls of
the tuned function must cost nothing then. The verdict is the median ratio of their CPU
seconds, with the middle half of all ratios beside it.
"""

import time
from pathlib import Path

import jax
import numpy as np

import meshwright as mw
from benchmarks.harness import STORED, Options, benchmark, option
from benchmarks.tune.layout_programs import PROGRAMS, step
from meshwright.app.check.sample import sample_arguments

PASSES, RUNS = 25, 5


def ratios_of(tuned, plain, args):
    """CPU seconds of some runs of `tuned` by those of `plain`, pass by pass."""
    found = []
    for number in range(-1, PASSES):  # the first pass compiles
        spent_s = [0.0, 0.0]
        for which in (0, 1) if number % 2 else (1, 0):
            start_s = time.process_time()
            for _ in range(RUNS):
                jax.block_until_ready((tuned, plain)[which](*args))
            spent_s[which] = time.process_time() - start_s
        found.append(spent_s[0] / spent_s[1])
    return found[1:]


def judge(name, options):
    fn, shapes = step(name)
    args = sample_arguments(fn, shapes, options.seed)
    journal = options.journals / f"{name}.jsonl"
    layouts = mw.tune(
        fn,
        args,
        backend="xla-cpu",
        budget=options.budget,
        seed=options.seed,
        resume=journal,
    )
    figures = {
        "chosen": [f"{each.site} {each.order}" for each in layouts.layouts],
        "promised": layouts.speed_up,
        "compiled": layouts.judged,
    }
    ratios = ratios_of(layouts, jax.jit(fn), jax.device_put(args))
    low, middle, high = np.quantile(ratios, (0.25, 0.5, 0.75))
    figures |= {"speed_up": 1 / middle, "least": 1 / high, "most": 1 / low}
    options.save_case("programs", name, figures)


@benchmark(
    option("programs", nargs="*"),
    option("--budget", type=int, default=10),
    option("--journals", type=Path, default=Path("out/cpu_layouts")),
    out=STORED,
    seed=0,
)
def main(options: Options):
    options.journals.mkdir(parents=True, exist_ok=True)
    for name in options.programs or PROGRAMS:
        if name not in options.stored_part("programs"):
            judge(name, options)


if __name__ == "__main__":
    main()
