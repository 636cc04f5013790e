"""Features of a layout choice, by name, for the model that predicts its gain."""

import math
from collections.abc import Iterator

from meshwright.compile.tune.layouts.problem import LayoutChoice
from meshwright.compile.tune.layouts.sites import Site

_LANES, _SUBLANES = 128, 8
"""The tile to which a TPU pads the two minor dims."""


def features(site: Site, choice: LayoutChoice) -> dict[str, float]:
    """Features of a layout choice, by name.

    They are equal for sites whose values have the same shape and play the same role.
    """
    return dict(_features(site, choice))


def _features(site: Site, choice: LayoutChoice) -> Iterator[tuple[str, float]]:
    made, _, read = site.role.partition(">")
    rank, order = len(site.shape), choice.order
    minor, second = order[-1], order[-2]
    letters = f"{site.dims[second]}{site.dims[minor]}"
    yield "bias", 1.0
    yield f"made={made}", 1.0
    yield f"read={read}", 1.0
    yield f"role={site.role}", 1.0
    yield f"rank={rank}", 1.0
    yield f"minor={site.dims[minor]}", 1.0
    yield f"minors={letters}", 1.0
    yield f"read={read} minors={letters}", 1.0
    yield f"twin={int(choice.with_twin)}{int(bool(site.twins))}", 1.0
    yield f"moved={sum(a != b for a, b in zip(order, range(rank), strict=True))}", 1.0
    yield f"minor_size={_size(site.shape[minor], _LANES)}", 1.0
    yield f"second_size={_size(site.shape[second], _SUBLANES)}", 1.0
    yield "padding", math.log2(padding(site.shape, order) / best_padding(site))
    yield "share", site.share
    yield "loops", float(site.role.startswith("carry"))


def _size(extent: int, tile: int) -> str:
    if extent % tile == 0:
        return "whole"
    return "large" if extent > tile else "small"


def padding(shape: tuple[int, ...], order: tuple[int, ...]) -> float:
    """Bytes after padding to tiles, as a multiple of the bytes without."""
    minor, second = shape[order[-1]], shape[order[-2]]
    return (math.ceil(minor / _LANES) * _LANES / minor) * (
        math.ceil(second / _SUBLANES) * _SUBLANES / second
    )


def best_padding(site: Site) -> float:
    """The padding of a site with the best order of its dims."""
    rank = range(len(site.shape))
    return min(padding(site.shape, (a, b)) for a in rank for b in rank if a != b)
