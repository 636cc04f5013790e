"""Images of few features: a convolution reads them from a copy in 16 bits.

The TPU compiler does not cast images of 3 features inside the convolution. It stores the
cast with images and pixels as minor dims, and the backward pass reads the same array.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from meshwright.predict.compilers.model.dataflow import Flow
from meshwright.program.ir import Value

_FEWEST = 8
"""Fewest features of images that a convolution casts itself: the rows of a tile."""


def store_narrow_images(flow: Flow) -> Flow:
    """The dataflow graph in which casts of such images are stored."""
    found = set(_narrow_casts(flow))
    return replace(flow, stored={*flow.stored, *found}) if found else flow


def _narrow_casts(flow: Flow) -> Iterator[Value]:
    for op in flow.kinds:
        if op.kind != "conv_general_dilated":
            continue
        numbers: Any = op.params["dimension_numbers"]
        images = op.operands[0]
        maker = flow.producers.get(images) if isinstance(images, Value) else None
        if maker is None or maker.kind != "convert_element_type":
            continue
        if images.shape[numbers.lhs_spec[1]] < _FEWEST:
            yield from maker.results
