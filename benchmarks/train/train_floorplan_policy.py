"""Train the policy for floorplans on generated chips, and write the file that is shipped.

    python -m benchmarks train train_floorplan_policy --steps 64000 --out FOLDER

No real netlist is seen. An interrupted training goes on from the folder; it writes
`shipped.npz` there, which Meshwright ships beside `policy/shipped.py`. One CPU minute.
"""

from pathlib import Path

from benchmarks.floorplan.generated import generated_chip
from benchmarks.harness import REQUIRED, Options, benchmark, option
from meshwright.codesign import floorplan as fp


@benchmark(
    option("--chips", type=int, default=32),
    option("--steps", type=int, default=64_000),
    option("--workers", type=int, default=2),
    out=REQUIRED,
    seed=0,
)
def main(options: Options) -> None:
    """Train on chips with the seeds 0, 1, 2, ..., and print the curve."""
    chips = {f"chip {i}": generated_chip(i) for i in range(options.chips)}

    def show(point: fp.TrainingPoint) -> None:
        gain = point.reward - point.random
        print(f"{point.steps:8} {point.seconds:7.1f} s {point.chip:9} {gain:+.4f}")

    trained = fp.train(
        chips,
        steps=options.steps,
        workers=options.workers,
        seed=options.seed,
        folder=Path(options.out),
        progress=show,
    )
    trained.policy.save(Path(options.out) / "shipped.npz")
    print(trained.table())


if __name__ == "__main__":
    main()
