"""Figures that describe an application beside its log, so that a model can know it.

They come from the traced program alone: no design and no simulation is involved.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from meshwright.errors import AcceleratorError
from meshwright.features.codesign.accelerator.workload.layers import Layer, Workload
from meshwright.plain import Frame, read_text

_HEADER = {"format": "meshwright application, version 1"}
_FRAME = Frame(
    AcceleratorError, "an application", _HEADER, indent=1,
    advice="the file that `meshwright accelerator log` writes beside a log",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Description:
    """The file's record: figures by name."""

    figures: dict[str, float]

    def __post_init__(self) -> None:
        if not self.figures or not all(map(math.isfinite, self.figures.values())):
            raise AcceleratorError("figures of an application have to be numbers")


def describe_application(workload: Workload) -> dict[str, float]:
    """Figures of a workload by name: amounts of work and data, and shapes of products.

    Means over products are weighted by their multiplications. All are natural logarithms
    of one plus a figure, or shares.
    """
    macs = workload.multiply_adds
    products = [layer for layer in workload.layers if layer.product is not None]
    inner = [t.num_bytes * t.times for t in workload.tensors if not t.is_weight]
    vector = math.fsum(layer.times * layer.vector_flops for layer in workload.layers)
    depthwise = math.fsum(layer.times * layer.depthwise_flops for layer in products)
    figures = {
        "multiply_adds": math.log1p(macs),
        "weight_bytes": math.log1p(workload.weight_bytes),
        "activation_bytes": math.log1p(math.fsum(inner)),
        "largest_activation_bytes": math.log1p(max(inner, default=0.0)),
        "vector_flops": math.log1p(vector),
        "layers": math.log1p(len(workload.layers)),
        "executions": math.log1p(sum(layer.times for layer in workload.layers)),
        "depthwise_share": depthwise / max(1.0, 2 * macs),
    }
    for dim in ("m", "n", "k"):
        figures[f"mean_{dim}"] = _mean_extent(products, dim)
    return figures


def _mean_extent(products: list[Layer], dim: str) -> float:
    """Mean of the logarithm of one dim of the products, by their multiplications."""
    pairs = [
        (layer.times * extents.multiply_adds, math.log1p(getattr(extents, dim)))
        for layer in products
        if layer.product is not None
        for extents in [layer.product.extents]
    ]
    weight = math.fsum(w for w, _ in pairs)
    return math.fsum(w * x for w, x in pairs) / weight if weight else 0.0


def write_application(path: Path, figures: Mapping[str, float]) -> None:
    """Write the figures of an application to a file."""
    text = _FRAME.write(_Description(dict(figures)))
    path.write_text(text + "\n", encoding="utf-8")


def read_application(path: Path) -> dict[str, float]:
    """The figures of an application from the file that `write_application` wrote."""
    text = read_text(path, AcceleratorError, "an application")
    try:
        described: _Description = _FRAME.read(_Description, text)
    except AcceleratorError as fault:
        raise AcceleratorError(f"{path}: {fault}") from None
    return described.figures
