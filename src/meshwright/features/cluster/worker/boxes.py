"""Boxes: rectangular parts of sharded arrays, and the processes that exchange them.

All workers know both shardings of a transfer. So each worker finds out for itself which
boxes it has to send, and which processes send it the boxes that it lacks.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from meshwright.errors import ClusterError
from meshwright.features.cluster.wire.messages import HostArray
from meshwright.jax_private import is_key

type Box = tuple[tuple[int, int], ...]
"""A part of an array: where it starts and stops in each dim."""


class BoxData(NamedTuple):
    """One part of an array, with its data, which may lie on a device.

    key_type: as in `HostArray`; the data of PRNG keys has one more dim.
    """

    box: Box
    data: Any
    key_type: str = ""


class Route(NamedTuple):
    """A box that one process sends to another, or keeps on its own devices."""

    sender: int
    receiver: int
    box: Box


def holders(aval: jax.ShapeDtypeStruct) -> dict[Box, tuple[int, ...]]:
    """The parts of a sharded array, each with the processes that hold it."""
    assert aval.sharding is not None
    found: dict[Box, dict[int, None]] = {}
    for device, index in aval.sharding.devices_indices_map(aval.shape).items():
        found.setdefault(box_of(index, aval.shape), {})[device.process_index] = None
    return {box: tuple(processes) for box, processes in found.items()}


def routes(
    source: Mapping[Box, tuple[int, ...]],
    target: Mapping[Box, tuple[int, ...]],
    process: int,
) -> Iterator[Route]:
    """The boxes that a process sends or receives when an array's placement changes.

    source, target: the processes that hold each box, before and after.
    Each receiver gets each box once: from itself if it holds it, else from one of the
    processes that hold it. Receivers of the same box use different senders in turn.
    """
    mine = {box: None for box, senders in source.items() if process in senders}
    others = [box for box in source if box not in mine]
    wanted = [box for box, receivers in target.items() if process in receivers]
    pairs = itertools.product(mine, target), itertools.product(others, wanted)
    for box, want in itertools.chain(*pairs):
        common = _intersection(box, want)
        for receiver in target[want] if common is not None else ():
            senders = source[box]
            chosen = senders[receiver % len(senders)]
            sender = receiver if receiver in senders else chosen
            if process in (sender, receiver) and common is not None:
                yield Route(sender, receiver, common)


def cut(value: jax.Array, boxes: Sequence[Box]) -> list[BoxData]:
    """Copies of boxes of an array; each box lies within one part on this process's devices.

    The copies stay on the devices, and are valid even if the array is donated next.
    """
    if not boxes:
        return []
    key_type = str(jax.random.key_impl(value)) if is_key(value.dtype) else ""
    own = {box_of(s.index, value.shape): s.data for s in value.addressable_shards}
    parts: list[BoxData] = []
    for box in boxes:
        around = next(each for each in own if _intersection(each, box) == box)
        data = own[around]
        data = jax.random.key_data(data) if key_type else data
        parts.append(BoxData(box, jnp.copy(data[_slices(box, around)]), key_type))
    return parts


def assemble(target: Any, parts: Sequence[BoxData]) -> jax.Array:
    """The array on this process's devices; `ClusterError` if a part is missing."""
    filled: dict[Box, Any] = {}
    arrays: list[Any] = []
    indices = target.sharding.addressable_devices_indices_map(target.shape)
    key_type = next((part.key_type for part in parts), "")
    for device, index in indices.items():
        box = box_of(index, target.shape)
        if box not in filled:
            filled[box] = fill(box, parts, target.dtype)
        data = jax.device_put(filled[box], device)
        arrays.append(
            jax.random.wrap_key_data(data, impl=key_type) if key_type else data
        )
    return jax.make_array_from_single_device_arrays(
        target.shape, target.sharding, arrays
    )


def on_devices(value: HostArray, target: Any) -> jax.Array:
    """Place an array of the host on devices; each device gets only its part."""
    data = np.asarray(value.data)
    return assemble(target, [BoxData(whole_box(target.shape), data, value.key_type)])


def fill(box: Box, parts: Sequence[BoxData], dtype: Any) -> Any:
    """The data of one box, from the parts that overlap it.

    dtype: that of the data if there are no parts, as of an array without elements.
    Raises `ClusterError` if a part is missing.
    """
    pairs = [(part, _intersection(part.box, box)) for part in parts]
    overlaps = [(part, common) for part, common in pairs if common is not None]
    for part, common in overlaps:
        if common == box:
            return part.data[_slices(box, part.box)] if part.box != box else part.data
    missing = _size(box) - sum(_size(common) for _, common in overlaps)
    if missing:
        raise ClusterError(f"{missing} elements of an array have not arrived")
    shape = tuple(stop - start for start, stop in box)
    first = parts[0].data if parts else np.empty(shape, dtype)
    whole = np.empty((*shape, *first.shape[len(shape) :]), first.dtype)
    for part, common in overlaps:
        data = np.asarray(part.data)
        whole[_slices(common, box)] = data[_slices(common, part.box)]
    return whole


def whole_box(shape: Sequence[int]) -> Box:
    """The box that covers an array."""
    return tuple((0, size) for size in shape)


def box_of(index: Sequence[slice], shape: Sequence[int]) -> Box:
    """The box that an index of JAX stands for."""
    # Indices of keys have a dim more than the shape, that of their words.
    pairs = zip(index[: len(shape)], shape, strict=True)
    return tuple(each.indices(size)[:2] for each, size in pairs)


def _slices(box: Box, around: Box) -> tuple[slice, ...]:
    """The slices that index a box within `around`, a box that contains it."""
    pairs = zip(box, around, strict=True)
    return tuple(slice(a - first, b - first) for (a, b), (first, _) in pairs)


def _intersection(a: Box, b: Box) -> Box | None:
    """The box that two boxes have in common; `None` if there is none."""
    pairs = zip(a, b, strict=True)
    common = tuple((max(p[0], q[0]), min(p[1], q[1])) for p, q in pairs)
    return common if all(start < stop for start, stop in common) else None


def _size(box: Box) -> int:
    return math.prod(stop - start for start, stop in box)
