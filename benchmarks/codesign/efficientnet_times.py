"""Predicted times of EfficientNets on GPUs and a TPU beside published ones.

`x` has EfficientNet-X over EfficientNet at batch 128, B0 to B7. `rtx-3090` has images/s
in float16 over those that timm measured with PyTorch 1.13 and 2.4, channels last
(huggingface/pytorch-image-models, results/benchmark-infer-amp-nhwc-*-rtx3090.csv).
"""

from __future__ import annotations

from statistics import geometric_mean
from typing import Any

from benchmarks.harness import STORED, Options, benchmark
from meshwright.codesign import nas
from zoo.efficientnet import inference

TARGETS = (
    ("tpu-v3", "bfloat16", None),
    ("v100", "float16", None),
    ("v100", "float16", "tensorflow"),
    ("v100", "float16", "pytorch"),
)
"""Machine, dtype, and the framework that runs ops without a compiler."""

MEASURED = (
    ("b0", 224, 1024, 7965.17, 8241.4),
    ("b1", 256, 1024, 4239.44, 4384.99),
    ("b2", 288, 1024, 3223.9, 3305.5),
    ("b3", 320, 1024, 1949.54, 1664.16),
    ("b4", 384, 512, 1014.08, 888.84),
    ("b5", 448, 512, 533.21, 452.46),
    ("b6", 528, 256, 287.31, 207.93),
    ("b7", 600, 192, 166.38, 129.75),
    ("edge_s", 224, 1024, 6115.12, 6238.02),
    ("edge_m", 240, 1024, 3671.25, 3750.15),
    ("edge_l", 300, 1024, 1549.97, 1618.59),
)
"""Net, image size, batch, and images/s by PyTorch 1.13 and by PyTorch 2.4."""


def _seconds(
    name: str, machine: str, framework: str | None = None, **changes: Any
) -> float:
    fn, args = inference[name](**changes)
    return nas.latency(fn, args, machine, framework=framework).seconds


def speedups(machine: str, dtype: str, framework: str | None) -> dict[str, float]:
    """How many times as fast X is, by size, and the geometric mean."""
    found: dict[str, float] = {}
    for size in range(8):
        plain, x = (
            _seconds(name, machine, framework, batch=128, dtype=dtype)
            for name in (f"b{size}", f"x_b{size}")
        )
        found[f"b{size}"] = round(plain / x, 3)
    return found | {"mean": round(geometric_mean(found.values()), 3)}


@benchmark(out=STORED)
def main(options: Options) -> None:
    """Print the ratios, and store them."""
    for machine, dtype, framework in TARGETS:
        case = f"{machine} {framework or 'compiled'}"
        options.save_case("x", case, speedups(machine, dtype, framework))
    for name, size, batch, old, new in MEASURED:
        changes = {"batch": batch, "dtype": "float16", "size": size}
        rate = batch / _seconds(name, "rtx-3090", "pytorch", **changes)
        figures = {
            "images_per_s": round(rate, 1),
            "over_pytorch_1_13": round(rate / old, 3),
            "over_pytorch_2_4": round(rate / new, 3),
        }
        options.save_case("rtx-3090", name, figures)


if __name__ == "__main__":
    main()
