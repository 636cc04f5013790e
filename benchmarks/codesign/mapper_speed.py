"""CPU time of the mapper and of SCALE-Sim on the same products (extra `codesign`)."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from benchmarks.codesign.scalesim_runs import DESIGN, products, simulated_cycles
from benchmarks.harness import STORED, Options, benchmark, option
from meshwright.codesign import accelerator as acc


@benchmark(
    option("--products", type=int, default=34, help="products of each dataflow"),
    seed=0,
    out=STORED,
)
def main(options: Options) -> None:
    """Print how many times longer SCALE-Sim takes, by dataflow."""
    for dataflow in ("ws", "os", "is"):
        acc.map_product(DESIGN, m=8, n=8, k=8, dataflow=dataflow)  # compiles the mapper
        simulated_s = mapped_s = 0.0
        with tempfile.TemporaryDirectory() as folder:
            for product in products(options.products, options.seed):
                began = time.process_time()
                simulated_cycles(Path(folder), **product, dataflow=dataflow)
                ended = time.process_time()
                acc.map_product(DESIGN, **product, dataflow=dataflow)
                mapped_s += time.process_time() - ended
                simulated_s += ended - began
        figures = {"ratio": simulated_s / mapped_s, "mapper_s": mapped_s}
        options.save_case("products", dataflow, figures)


if __name__ == "__main__":
    main()
