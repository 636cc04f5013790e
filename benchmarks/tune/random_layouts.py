"""Compiles random layouts of a block: how much is there for a search to gain at all?

    python -m benchmarks tune random_layouts lstm,attention --chip tpu-v5e --tries 100

Each try gives one to three sites a random layout, and is compiled whole unless an
earlier try led to the same program. Costs are charged as in the search. Needs the TPU
compiler (`meshwright[tpu]`), and no TPU. An interrupted run goes on.
"""

import hashlib
import math

import numpy as np

from benchmarks import places
from benchmarks.harness import Options, benchmark, option
from benchmarks.tune.tune_layouts import RESULTS as TUNED
from benchmarks.tune.tune_layouts import program_of, read
from meshwright.features.tune.compiler_server.server import CompilerServer, host_of
from meshwright.features.tune.layouts.compiler_judge import EstimateJudge
from meshwright.features.tune.layouts.kernel_costs import same_program
from meshwright.features.tune.layouts.kernel_work import rates_of
from meshwright.features.tune.layouts.problem import choices_of, question_of
from meshwright.features.tune.layouts.sites import find_sites
from meshwright.features.tune.tune_layouts import machine_of, tuned_step

RESULTS = places.RESULTS / "random_layouts.json"


def random_state(sites, seed, number):
    """Layouts of one to three sites, drawn evenly; the same for the same arguments."""
    draw = np.random.default_rng((seed, number))
    count = min(len(sites), int(draw.integers(1, 4)))
    chosen = sorted(draw.choice(len(sites), count, replace=False))
    options = [choices_of(sites[i]) for i in chosen]
    state = [each[draw.integers(len(each))] for each in options]
    return tuple(sorted(state, key=lambda choice: choice.site))


def try_layouts(name, chip, options, known):
    """Yields the figures of one block after each try.

    cycles: one number for each program that was compiled, `None` if that failed.
    """
    decided = program_of(name)
    program, machine = decided.lowered.program, machine_of(chip, 1)
    sites = find_sites(program, decided.captured.paths)
    by_name = {site.name: site for site in sites}
    tuned = read(TUNED)[f"{name} {chip}"]
    is_auto = tuned["baseline"] == "auto"
    price = machine.chip.clock_hz / machine.chip.hbm_bytes_per_s
    with CompilerServer(host_of(machine), 120.0) as server:
        judge = EstimateJudge(server, tuned_step(decided), rates_of(machine))
        base = judge.judge(question_of(program, by_name, (), is_auto))
        figures = {"base": base.cost, "search": tuned["charged"], "tries": 0}
        figures |= {"programs": [], "cycles": [], **known}
        seen = {key_of(judge.screen(question_of(program, by_name, (), is_auto)))}
        seen |= set(figures["programs"])
        for number in range(figures["tries"], options.tries):
            state = random_state(sites, options.seed, number)
            question = question_of(program, by_name, state, is_auto)
            key = key_of(judge.screen(question))
            if key not in seen:
                seen.add(key)
                verdict = judge.judge(question)
                more = max(0, verdict.unestimated_bytes - base.unestimated_bytes)
                cost = verdict.cost + price * more
                figures["programs"].append(key)
                figures["cycles"].append(round(cost) if math.isfinite(cost) else None)
            figures["tries"] = number + 1
            yield figures


def key_of(kernels):
    """A text that is equal for equal programs; "" if the program cannot be compiled."""
    if kernels is None:
        return ""
    parts = sorted(same_program(kernels).items())
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


@benchmark(
    option("blocks"),
    option("--chip", default="tpu-v5e"),
    option("--tries", type=int, default=100),
    out=RESULTS,
    seed=0,
)
def main(options: Options):
    for name in options.blocks.split(","):
        key = f"{name} {options.chip}"
        for figures in try_layouts(
            name, options.chip, options, options.stored({}).get(key, {})
        ):
            known = {**options.stored({}), key: figures}
            options.save(known)
            best = min((c for c in figures["cycles"] if c), default=math.inf)
            count = len(figures["cycles"])
            print(
                f"{key}: {figures['tries']} tries, {count} programs, base "
                f"{figures['base']:,.0f}, search {figures['search']:,.0f}, best {best:,}",
                flush=True,
            )


if __name__ == "__main__":
    main()
