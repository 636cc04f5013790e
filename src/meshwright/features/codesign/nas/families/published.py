"""A proxy for the accuracy of a scaled model: the published accuracies of EfficientNet.

M. Tan and Q. V. Le ("EfficientNet", ICML 2019) found that for equal operations the best
net has depth 1.2^phi, width 1.1^phi and resolution 1.15^phi, and published what B0 to B7
reach on ImageNet. A sum of falling powers of the three scales agrees with both: at the best
net each scale gains as much per operation, so that each exponent times the logarithm of the
scale's base is one number, `_DECAY`. That, the limit and the gain are fitted to the eight
accuracies.
"""

from __future__ import annotations

import math

BASES = (1.2, 1.1, 1.15)
"""Growth of depth, width and resolution in EfficientNet's law."""

_COSTS = (1, 2, 2)
"""Powers of depth, width and resolution in the operations of a convolutional net."""

_LIMIT, _GAIN, _DECAY = 84.46, 4.849, 0.4561
"""Fitted to `PUBLISHED`: 0.27 per cent root mean square, and 0.57 at the most."""

PUBLISHED = (
    (1.0, 1.0, 224, 77.1), (1.1, 1.0, 240, 79.1), (1.2, 1.1, 260, 80.1),
    (1.4, 1.2, 300, 81.6), (1.8, 1.4, 380, 82.9), (2.2, 1.6, 456, 83.6),
    (2.6, 1.8, 528, 84.0), (3.1, 2.0, 600, 84.3),
)  # fmt: skip
"""Depth, width, resolution and top-1 accuracy in per cent of B0 to B7."""

NOTE = (
    "accuracy: a proxy fitted to the published ImageNet accuracies of EfficientNet B0 to "
    "B7, not your model's; give --accuracy for your own"
)


def published_accuracy(depth: float, width: float, relative_size: float) -> float:
    """Top-1 accuracy in per cent of EfficientNet at these scales, by the fit.

    relative_size: resolution over that of the base model.

    >>> round(published_accuracy(1.0, 1.0, 1.0), 1)
    77.5
    """
    lost = 0.0
    scales = (depth, width, relative_size)
    for scale, base, cost in zip(scales, BASES, _COSTS, strict=True):
        exponent = _DECAY / math.log(base)
        lost += cost / exponent * scale**-exponent
    return _LIMIT - _GAIN * lost
