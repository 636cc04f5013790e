"""Measures random tilings of the kernels in `tile_kernels.py` on this machine's CPU.

    python -m benchmarks train collect_tiles --configs 50 [--held-out] [KERNEL ...]

Kernels with a result are skipped, so that an interrupted run goes on. Run it on one core
(`taskset -c 1`): times are CPU seconds of one thread.
"""

import time

from benchmarks import places
from benchmarks.harness import Options, benchmark, option
from benchmarks.tune.tile_kernels import HELD_OUT, TRAINING, arguments
from meshwright.errors import MeshwrightError
from meshwright.features.tune.collect.layouts import CollectionPlan
from meshwright.features.tune.collect.tiles import collect_tiles
from meshwright.features.tune.learned.data_files import write_npz
from meshwright.learn.ranking import noise_ceiling

DATA = places.DATA / "tiles"


@benchmark(
    option("kernels", nargs="*"),
    option("--configs", type=int, default=50),
    option("--held-out", action="store_true"),
    out=DATA,
    seed=0,
)
def main(options: Options):
    known = HELD_OUT if options.held_out else TRAINING
    folder = options.out / ("held_out" if options.held_out else "training")
    plan = CollectionPlan(options.configs, 3, options.seed)
    for name in options.kernels or known:
        if not (folder / f"{name}.npz").exists():
            collect(name, known[name], plan, folder)


def collect(name, kernel, plan, folder):
    fn, shapes = kernel
    start_s = time.perf_counter()
    try:
        measured = collect_tiles(name, fn, arguments(shapes, plan.seed), plan, folder)
    except MeshwrightError as fault:
        print(f"{name}: {fault}", flush=True)
        return
    write_npz(folder, measured)
    (folder / f"{name}.partial.jsonl").unlink()
    provenance = measured.provenance
    times = measured.runtime_ns
    print(
        f"{measured}, {len(provenance.errors)} failed, default / best "
        f"{measured.speedup():.2f}, worst / best {times.max() / times.min():.1f}, "
        f"noise ceiling {noise_ceiling(provenance.pass_ns):.3f}, "
        f"{time.perf_counter() - start_s:.0f} s",
        flush=True,
    )


if __name__ == "__main__":
    main()
