"""The parts of an array that are on this process's devices, as clients fetch them."""

from typing import Any

import jax
import numpy as np

from meshwright.features.cluster.wire.messages import ArrayKey, HostArray
from meshwright.features.cluster.worker.boxes import BoxData, box_of, whole_box
from meshwright.features.cluster.worker.progress import error_text
from meshwright.jax_private import is_key


def parts_of(value: Any) -> tuple[BoxData, ...]:
    """The first replica of each part of an array that is on this process's devices."""
    if isinstance(value, HostArray):
        if jax.process_index():
            return ()
        data = np.asarray(value.data)
        shape = data.shape[:-1] if value.key_type else data.shape
        return (BoxData(whole_box(shape), data, value.key_type),)
    key_type = str(jax.random.key_impl(value)) if is_key(value.dtype) else ""
    return tuple(
        BoxData(
            box_of(shard.index, value.shape),
            np.asarray(jax.random.key_data(shard.data) if key_type else shard.data),
            key_type,
        )
        for shard in value.addressable_shards
        if shard.replica_id == 0
    )


def why_not_read(array: ArrayKey, value: Any, error: Exception) -> str:
    """The reason, for a client, why this process cannot read its parts of an array."""
    if isinstance(value, jax.Array) and value.is_deleted():
        return f"array {array.number} was donated to a call; go on with its results"
    return f"array {array.number} cannot be read: {error_text(error)}"
