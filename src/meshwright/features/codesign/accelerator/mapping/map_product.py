"""`map_product`: the best mapping of one product given by its extents."""

from dataclasses import replace
from numbers import Integral

from meshwright.errors import AcceleratorError
from meshwright.features.codesign.accelerator.design.design import ITEMSIZE, Design
from meshwright.features.codesign.accelerator.mapping.folds import Extents
from meshwright.features.codesign.accelerator.mapping.mapper import map_to, require
from meshwright.features.codesign.accelerator.mapping.product import (
    ArrayProduct,
    ProductMapping,
)

DATAFLOW_NAMES = {"ws": "weight", "os": "output", "is": "input"}
"""Short names of dataflows, as other tools spell them."""


def map_product(
    design: Design, *, m: int, n: int, k: int, batch: int = 1, dataflow: str = ""
) -> ProductMapping:
    """The fastest mapping of a product of M x K by K x N, the left operand streaming.

    dataflow: in place of the design's: "weight", "output" or "input", or "ws", "os", "is".

    >>> design = Design.load("tpu-v4i").changed(pes=(1, 1), preloads=0)
    >>> map_product(design, m=512, n=128, k=128).cycles  # one fold: 2R + C + M - 2
    894
    """
    for name, extent in (("m", m), ("n", n), ("k", k), ("batch", batch)):
        if not isinstance(extent, Integral) or extent < 1:
            raise AcceleratorError(f"{name} is {extent!r}; wanted 1 or more, whole")
    chip = design.chip
    if dataflow:
        chip = replace(chip, dataflow=DATAFLOW_NAMES.get(dataflow, dataflow))
    extents = Extents(int(batch), int(m), int(n), int(k))
    product = ArrayProduct.of(extents, ITEMSIZE[chip.number], is_fixed=True)
    return require(map_to(product, chip), f"a product of {m} x {k} by {k} x {n}")
