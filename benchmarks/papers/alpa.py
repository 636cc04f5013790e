"""Alpa's examples on a mesh of n0 by n1: collectives from one sharding to another.

Zheng et al., "Alpa", OSDI 2022: resharding in Table 2, a batched product in Table 3. M is
the whole value in bytes; axes of the mesh are called "0" and "1", as in the paper.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import jax

import meshwright as mw
from meshwright.partitioner.lower.reshard import local_shape, reshard_steps
from meshwright.program.ir import Sharding

MESH = {"0": 2, "1": 4}
SHAPE = (64, 128)
WHOLE_BYTES = 4 * math.prod(SHAPE)

Move = tuple[str, tuple[str, ...], float]
"""Kind, axes, and bytes of the whole value on one device: the larger of two sides."""
Dims = tuple[tuple[str, ...], ...]

TABLE_2: Mapping[str, tuple[Dims, Dims, tuple[Move, ...]]] = {
    "S0 R to R S0": (
        (("0",), ()),
        ((), ("0",)),
        (("all_to_all", ("0",), WHOLE_BYTES / 2),),
    ),
    "S0 S1 to S01 R": (
        (("0",), ("1",)),
        (("0", "1"), ()),
        (("all_to_all", ("1",), WHOLE_BYTES / 8),),
    ),
    "S0 S1 to S0 R": (
        (("0",), ("1",)),
        (("0",), ()),
        (("all_gather", ("1",), WHOLE_BYTES / 2),),
    ),
}
TABLE_3: Mapping[str, tuple[Mapping[str, str], tuple[Move, ...]]] = {
    "i to 0, j to 1": ({"i": "0", "j": "1"}, ()),
    "i to 0, k to 1": (
        {"i": "0", "k": "1"},
        (("all_reduce", ("1",), WHOLE_BYTES / 2),),
    ),
    "k to 0 and 1": ({"k": "01"}, (("all_reduce", ("0", "1"), WHOLE_BYTES),)),
}
"""Axes along which each letter is cut in the product: sum over k of a[i, k] b[k, j]."""


def resharding(have: Dims, need: Dims) -> tuple[Move, ...]:
    """The collectives between two shardings of a value of `SHAPE`."""
    told: list[Move] = []
    now = [list(axes) for axes in have]
    for step in reshard_steps(Sharding(have), Sharding(need)):
        before = _held_bytes(now)
        for axis in step.axes:
            now[step.dim].remove(axis)
            if step.kind == "all_to_all":
                now[step.other].append(axis)
        told.append((step.kind, step.axes, max(before, _held_bytes(now))))
    return tuple(told)


def _held_bytes(dims: list[list[str]]) -> int:
    sharding = Sharding(tuple(map(tuple, dims)))
    return 4 * math.prod(local_shape(SHAPE, sharding, mw.Mesh(MESH)))


def product(cuts: Mapping[str, str]) -> tuple[Move, ...]:
    """The collectives of a product whose letters are cut along these axes."""
    dims = {"i": {"a": 0}, "j": {"b": 1}, "k": {"a": 1, "b": 0}}
    schedule = [mw.shard(dims[f], axis) for f, axes in cuts.items() for axis in axes]
    rows, columns = SHAPE
    given = [jax.ShapeDtypeStruct(s, "float32") for s in ((rows, 32), (32, columns))]
    plan = mw.partition(lambda a, b: a @ b, MESH, schedule).plan(*given)
    return tuple((c.kind, c.axes, c.bytes) for c in plan.collectives)
