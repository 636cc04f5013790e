"""Seconds of programs by the simulator of designs and by `predict`, on one TPU v3.

Both read the same TOML: the simulator its table `[accelerator]`, `predict` its `[chip]`.
"""

from __future__ import annotations

from benchmarks.codesign import chip_programs
from benchmarks.harness import STORED, Options, benchmark
from meshwright.codesign import accelerator as acc
from meshwright.codesign import nas

PROGRAMS = (
    ("b0", 64),
    ("resnet50", 16),
    ("bert_base", 32),
    ("bert_large", 8),
    ("mlp", 200),
    ("cnn", 32),
    ("lstm", 16),
)


@benchmark(out=STORED)
def main(options: Options) -> None:
    """Print milliseconds by both, and their ratio, for each program."""
    design = acc.Design.load("tpu-v3")
    machine = design.machine()
    for name, batch in PROGRAMS:
        fn, args = getattr(chip_programs, name)(batch)
        simulated = acc.evaluate(design, fn, args).seconds
        predicted = nas.latency(fn, args, machine).seconds
        figures = {
            "simulated_ms": simulated * 1e3,
            "predicted_ms": predicted * 1e3,
            "ratio": simulated / predicted,
        }
        options.save_case("tpu-v3", name, figures)


if __name__ == "__main__":
    main()
