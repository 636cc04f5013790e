"""Speed of a chip like TPU v4i by the size of its on-chip memory, beside published shares.

Published: Jouppi et al., "Ten Lessons From Three Generations Shaped Google's TPUv4i" (ISCA
2021): speed with 0, 16, 72 and 112 of 128 MB, on production applications and on MLPerf.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from benchmarks.codesign import chip_programs
from benchmarks.harness import STORED, Options, benchmark
from meshwright.codesign import accelerator as acc

MIB = 1 << 20
SIZES_MIB = (0, 16, 72, 112, 128)

PUBLISHED = {"production": (69, 82, 90, 98, 100), "mlperf": (76, 87, 97, 100, 100)}

PROGRAMS: Mapping[str, Sequence[tuple[str, int]]] = {
    "production": (
        ("mlp", 200),
        ("lstm", 16),
        ("cnn", 32),
        ("bert_base", 128),
        ("bert_large", 16),
    ),
    "mlperf": (("resnet50", 16), ("bert_large", 8)),
}
"""Stand-ins and their batches, by group. MLPerf's inference in datacenters had ResNet-50,
SSD, BERT-large and an RNN."""


@benchmark(out=STORED)
def main(options: Options) -> None:
    """Print speeds relative to 128 MiB: of each program, and their geometric mean."""
    for group, programs in PROGRAMS.items():
        each = {name: speeds(getattr(chip_programs, name), b) for name, b in programs}
        for name, found in each.items():
            options.save_case(group, name, figures(found))
        means = [
            math.exp(math.fsum(math.log(s[i]) for s in each.values()) / len(each))
            for i in range(len(SIZES_MIB))
        ]
        options.save_case(group, "mean", figures(means))
        published = [share / 100 for share in PUBLISHED[group]]
        options.save_case(group, "published", figures(published))


def figures(speeds: Sequence[float]) -> dict[str, float]:
    """Speeds by the size of the memory."""
    return {f"mib_{size}": s for size, s in zip(SIZES_MIB, speeds, strict=True)}


def speeds(program: Callable[[int], chip_programs.Target], batch: int) -> list[float]:
    """Speeds of a program relative to that with 128 MiB."""
    base = acc.Design.load("tpu-v4i")
    workload = acc.workload_of(*program(batch))
    seconds = [
        acc.evaluate_workload(with_memory(base, size), workload).seconds
        for size in SIZES_MIB
    ]
    return [seconds[-1] / each for each in seconds]


def with_memory(base: acc.Design, mib: int) -> acc.Design:
    """The chip with a global memory of another size; vector memory serves without one."""
    if mib:
        return base.changed(global_bytes=mib * MIB)
    return base.changed(global_bytes=0, global_bytes_per_s=0.0)


if __name__ == "__main__":
    main()
