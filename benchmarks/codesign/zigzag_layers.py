"""Cycles and energy of the products of known layers, beside zigzag.

    python -m benchmarks codesign zigzag_layers   # after make .venv-codesign/.installed

A weight-stationary array of 32 x 32 with one buffer of 256 KiB; both sides take the same
energy for each byte and each multiplication. For each product: our figures divided by
those of the best mapping that zigzag finds, and zigzag's count of our mapping divided by
its count of its own. docs/accelerator.md says where they differ, and why.

Zigzag's tiles divide a dim; ours need not. Where they do not, zigzag counts the next
smaller tile that does, or as many of ours as cover the dim, whichever is nearer to its own.
Loops that are given to it take whole folds, so it counts 160 of 144 columns; its own
mapping is then that of 160, too.
Zigzag loads an array at once, ours row by row; so cycles are also compared with those of
zigzag's fastest mapping where the array takes in a row of weights a cycle.
What zigzag found for the products in the results file is not searched again.
"""

from __future__ import annotations

import math
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.codesign.zigzag_runs import (
    COLUMNS,
    DESIGN,
    Counted,
    counted,
    covered,
    loops_of,
)
from benchmarks.harness import ONLY, STORED, Options, benchmark
from meshwright.codesign import accelerator as acc

LAYERS: dict[str, tuple[tuple[int, int, int], ...]] = {
    "BERT-base": (
        (384, 2304, 768), (384, 768, 768), (384, 3072, 768), (384, 768, 3072),
        (384, 384, 64), (384, 64, 384),
    ),
    "BERT-large": (
        (128, 3072, 1024), (128, 1024, 1024), (128, 4096, 1024), (128, 1024, 4096),
    ),
    "ViT-B/16": (
        (197, 2304, 768), (197, 768, 768), (197, 3072, 768), (197, 768, 3072),
        (197, 197, 64), (197, 64, 197),
    ),
    "ResNet-50": (
        (3136, 64, 64), (3136, 256, 64), (3136, 64, 256), (3136, 128, 256),
        (784, 512, 128), (784, 128, 512), (784, 256, 512), (196, 1024, 256),
        (196, 256, 1024), (196, 512, 1024), (49, 2048, 512), (49, 512, 2048),
        (1, 1000, 2048),
    ),
    "MobileNetV2": (
        (12544, 16, 32), (12544, 96, 16), (3136, 24, 96), (3136, 144, 24),
        (784, 32, 144), (784, 192, 32), (196, 64, 192), (196, 384, 64), (196, 96, 384),
        (196, 576, 96), (49, 160, 576), (49, 320, 960), (49, 1280, 320),
    ),
    "LSTM": ((32, 8192, 4096), (64, 2048, 1024)),
    "DLRM": (
        (256, 512, 512), (256, 256, 512), (256, 1024, 512), (256, 1024, 1024),
        (256, 256, 1024), (2048, 1, 256),
    ),
}  # fmt: skip
"""M, N and K of products: of convolutions the pointwise ones, images of 224 pixels."""


def compared(folder: Path, known: Any, m: int, n: int, k: int) -> dict[str, Any]:
    """Our figures of a product and zigzag's, and the ratios.

    known: an earlier row of the product, if there is one.
    """
    extents = {"M": m, "N": n, "K": k}
    if known is None:
        best = counted(folder, extents, "EDP")
    else:
        best = Counted(known["zigzag_cycles"], known["zigzag_energy_pj"])
    if known is None or "zigzag_row_cycles" not in known:
        rowwise = counted(folder, extents, "latency", weights_rate=COLUMNS).cycles
    else:
        rowwise = known["zigzag_row_cycles"]
    ours = acc.map_product(DESIGN, m=m, n=n, k=k, dataflow="ws")
    tried = [loops_of(ours, extents, divides) for divides in (True, False)]
    same = min(
        (same_count(folder, extents, loops, best) for loops in tried),
        key=lambda ratios: math.prod(ratios.values()),
    )
    cycles, energy_pj = ours.cycles + ours.stall_cycles, ours.energy_j * 1e12
    return {
        "schedule": ours.schedule,
        "cycles": cycles,
        "energy_pj": round(energy_pj),
        "zigzag_cycles": best.cycles,
        "zigzag_energy_pj": round(best.energy_pj),
        "zigzag_row_cycles": rowwise,
        "cycles_ratio": cycles / best.cycles,
        "row_cycles_ratio": cycles / rowwise,
        "energy_ratio": energy_pj / best.energy_pj,
        **same,
    }


def same_count(
    folder: Path,
    extents: dict[str, int],
    loops: Sequence[tuple[str, int]],
    best: Counted,
) -> dict[str, float]:
    """Zigzag's count of given loops, divided by that of its best for what they cover.

    best: its best for the extents themselves.
    """
    whole = covered(loops, extents)
    ours = counted(folder, whole, "EDP", loops)
    theirs = best if whole == extents else counted(folder, whole, "EDP")
    return {
        "counted_cycles_ratio": ours.cycles / theirs.cycles,
        "counted_energy_ratio": ours.energy_pj / theirs.energy_pj,
    }


@benchmark(ONLY, out=STORED)
def main(options: Options) -> None:
    """Compare the products, and print a line for each."""
    rows: dict[str, Any] = options.stored({"products": {}})["products"]
    for model, products in LAYERS.items():
        for m, n, k in products:
            name = f"{model} {m} x {n} x {k}"
            if options.only not in name:
                continue
            with tempfile.TemporaryDirectory() as folder:
                rows[name] = compared(Path(folder), rows.get(name), m, n, k)
            options.save({"products": rows})
            print(f"{name:32s}", _line(rows[name]), flush=True)
    ratios = [key for key in next(iter(rows.values())) if key.endswith("_ratio")]
    for key in ratios:
        found = [row[key] for row in rows.values()]
        print(
            f"{key:22s} {min(found):.3f} to {max(found):.3f}, "
            f"median {statistics.median(found):.3f}"
        )


def _line(row: dict[str, Any]) -> str:
    return (
        f"cycles {row['cycles_ratio']:.3f} and {row['row_cycles_ratio']:.3f} by row, "
        f"energy {row['energy_ratio']:.3f}; by zigzag's count "
        f"cycles {row['counted_cycles_ratio']:.3f}, "
        f"energy {row['counted_energy_ratio']:.3f}"
    )


if __name__ == "__main__":
    main()
