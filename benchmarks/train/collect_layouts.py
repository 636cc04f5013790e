"""Measures random layouts of the programs in `layout_programs.py` on this machine's CPU.

    XLA_FLAGS=--xla_cpu_multi_thread_eigen=false \
        taskset -c 1 python -m benchmarks train collect_layouts --configs 70 [PROGRAM ...]

Times are CPU seconds of one process, so that it needs one core and one thread. Programs
with a result are skipped, and an interrupted program goes on.
"""

import time

from benchmarks import places
from benchmarks.harness import Options, benchmark, option
from benchmarks.tune.layout_programs import PROGRAMS, step
from meshwright.app.check.sample import sample_arguments
from meshwright.features.tune.collect.layouts import CollectionPlan, collect_layouts
from meshwright.features.tune.learned.data_files import write_npz
from meshwright.learn.ranking import noise_ceiling

DATA = places.DATA / "layouts"


@benchmark(
    option("programs", nargs="*"),
    option("--configs", type=int, default=70),
    option("--passes", type=int, default=5),
    out=DATA,
    seed=0,
)
def main(options: Options):
    plan = CollectionPlan(options.configs, options.passes, options.seed)
    for name in options.programs or PROGRAMS:
        if not (options.out / f"{name}.npz").exists():
            collect(name, plan, options.out)


def collect(name, plan, folder):
    fn, shapes = step(name)
    args = sample_arguments(fn, shapes, plan.seed)
    start_s = time.perf_counter()
    measured = collect_layouts(name, fn, args, plan, folder)
    write_npz(folder, measured)
    (folder / f"{name}.partial.jsonl").unlink()
    times, provenance = measured.runtime_ns, measured.provenance
    print(
        f"{measured}, {len(provenance.errors)} failed, default "
        f"{times[0] / 1e6:.2f} ms, default / best {measured.speedup():.2f}, worst / best "
        f"{times.max() / times.min():.1f}, noise ceiling "
        f"{noise_ceiling(provenance.pass_ns):.3f}, {time.perf_counter() - start_s:.0f} s",
        flush=True,
    )


if __name__ == "__main__":
    main()
