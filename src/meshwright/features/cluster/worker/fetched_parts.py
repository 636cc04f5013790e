"""The parts of an array that are on this process's devices, as clients fetch them."""

from typing import Any

import jax
import numpy as np

from meshwright.features.cluster.wire.messages import (
    ArrayKey,
    ArrayPart,
    Fetched,
    HostArray,
)
from meshwright.features.cluster.worker.progress import error_text
from meshwright.jax_private import is_key


def parts_of(value: Any) -> Fetched:
    """The first replica of each part of an array that is on this process's devices."""
    if isinstance(value, HostArray):
        data = np.asarray(value.data)
        whole = ArrayPart(tuple(slice(None) for _ in data.shape), data)
        shards = () if jax.process_index() else (whole,)
        return Fetched(data.shape, shards, value.key_type)
    key_type = ""
    if is_key(value.dtype):
        key_type, value = str(jax.random.key_impl(value)), jax.random.key_data(value)
    shards = tuple(
        ArrayPart(shard.index, np.asarray(shard.data))
        for shard in value.addressable_shards
        if shard.replica_id == 0
    )
    return Fetched(value.shape, shards, key_type)


def why_not_read(array: ArrayKey, value: Any, error: Exception) -> str:
    """The reason, for a client, why this process cannot read its parts of an array."""
    if isinstance(value, jax.Array) and value.is_deleted():
        return f"array {array.number} was donated to a call; go on with its results"
    return f"array {array.number} cannot be read: {error_text(error)}"
