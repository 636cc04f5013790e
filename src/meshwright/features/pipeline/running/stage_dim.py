"""Functions of arrays whose leading dim is the stages of a pipeline."""

from typing import Any

import jax
from jax import lax


def along_stages(mask: Any, ndim: int) -> Any:
    """Reshape a mask of stages so that it broadcasts against arrays of `ndim` dims."""
    return mask.reshape(-1, *(1,) * (ndim - 1))


def element_of_each(x: Any, numbers: Any) -> Any:
    """Element `numbers[stage]` of each stage's own row `x[stage]`."""
    return jax.vmap(lambda row, i: lax.dynamic_index_in_dim(row, i, 0, False))(
        x, numbers
    )


def shared_element_of_each(x: Any, numbers: Any) -> Any:
    """Element `numbers[stage]`, for each stage, of an array that stages share."""
    return jax.vmap(lambda i: lax.dynamic_index_in_dim(x, i, 0, False))(numbers)
