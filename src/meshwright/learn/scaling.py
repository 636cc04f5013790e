"""Features brought to comparable sizes before a network reads them."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


def signed_log(numbers: NDArray[Any]) -> NDArray[Any]:
    """sign(x) log(1 + |x|) of each number."""
    return np.sign(numbers) * np.log1p(np.abs(numbers))


def moments(rows: Floats) -> tuple[Floats, Floats]:
    """Mean and 1 / standard deviation of each column; 0 for a constant one."""
    deviation = rows.std(axis=0)
    scale = np.where(deviation > 1e-6, 1 / np.maximum(deviation, 1e-6), 0)
    return rows.mean(axis=0).astype(np.float32), scale.astype(np.float32)
