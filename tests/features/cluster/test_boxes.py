"""Which process sends which box of an array to which, and arrays made of their boxes."""

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import NamedSharding, PartitionSpec

from meshwright.errors import ClusterError
from meshwright.features.cluster.worker.boxes import (
    BoxData,
    assemble,
    cut,
    holders,
    routes,
)

SHAPE = (8, 12)
COUNTS = st.tuples(st.sampled_from([1, 2, 4]), st.sampled_from([1, 2, 3, 4, 6]))


def placement(counts, processes):
    """Equal boxes of an array of `SHAPE`, dealt out to processes, with replicas."""
    rows, columns = (size // count for size, count in zip(SHAPE, counts, strict=True))
    boxes = [
        ((i * rows, (i + 1) * rows), (j * columns, (j + 1) * columns))
        for i in range(counts[0])
        for j in range(counts[1])
    ]
    found = {box: {} for box in boxes}
    for i in range(max(len(boxes), len(processes))):
        found[boxes[i % len(boxes)]][processes[i % len(processes)]] = None
    return {box: tuple(owners) for box, owners in found.items()}


@given(
    COUNTS,
    COUNTS,
    st.lists(st.integers(0, 5), min_size=1, max_size=6, unique=True),
    st.lists(st.integers(0, 5), min_size=1, max_size=6, unique=True),
)
def test_each_receiver_gets_each_element_that_it_needs_once(a, b, senders, receivers):
    source, target = placement(a, senders), placement(b, receivers)
    ways = {p: set(routes(source, target, p)) for p in range(6)}
    for process, found in ways.items():
        counts = np.zeros(SHAPE, int)
        for route in found:
            assert process in (route.sender, route.receiver)
            assert route in ways[route.sender]  # both ends know of it
            assert route in ways[route.receiver]
            owned = [box for box, o in source.items() if route.sender in o]
            slices = tuple(slice(*each) for each in route.box)
            inside = np.zeros(SHAPE, int)
            for box in owned:
                inside[tuple(slice(*each) for each in box)] = 1
            assert inside[slices].all()
            if route.receiver == process:
                counts[slices] += 1
        wanted = np.zeros(SHAPE, int)
        for box, readers in target.items():
            if process in readers:
                wanted[tuple(slice(*each) for each in box)] = 1
        np.testing.assert_array_equal(counts, wanted)


def placed(shape, spec, first=0):
    devices = np.array(jax.devices()[first : first + 4]).reshape(2, 2)
    mesh = jax.sharding.Mesh(devices, ("a", "b"))
    sharding = NamedSharding(mesh, PartitionSpec(*spec))
    return jax.ShapeDtypeStruct(shape, np.float32, sharding=sharding)


@pytest.mark.parametrize("spec", [(), ("a",), ("b", "a"), (("a", "b"),), (None, "b")])
def test_an_array_made_of_its_boxes_is_the_same(spec):
    x = np.arange(32, dtype=np.float32).reshape(8, 4)
    source, target = placed((8, 4), ("a", "b")), placed((8, 4), spec, 4)
    boxes = [r.box for r in routes(holders(source), holders(target), 0)]
    value = jax.device_put(x, source.sharding)
    parts = cut(value, boxes)
    value.delete()  # as a donation does
    np.testing.assert_array_equal(assemble(target, parts), x)


def test_an_array_of_which_a_part_is_missing_is_refused():
    part = BoxData(((0, 4), (0, 4)), np.zeros((4, 4), np.float32))
    with pytest.raises(ClusterError, match="not arrived"):
        assemble(placed((8, 4), ()), [part])
