"""Placements and callbacks.

What fixes its own sharding cannot be cut one factor at a time: `TRACED` is only captured
here, and run in tests/app/plan/test_partition.py.
"""

from __future__ import annotations

import jax
import numpy as np
from jax.experimental import io_callback
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from tests.program.ops.catalogue import Example

X = np.arange(64, dtype=np.float32).reshape(8, 8)
SHAPE = jax.ShapeDtypeStruct(X.shape, X.dtype)
AUTO = AbstractMesh((4, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
EXPLICIT = AbstractMesh((4, 2), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)


def _constrained(x):
    return jax.lax.with_sharding_constraint(x * 2, NamedSharding(AUTO, P("x")))


def _printed(x):
    jax.debug.print("")
    jax.debug.callback(lambda _: None, x.sum())
    return x * 2


def _resharded(x):
    with jax.sharding.use_abstract_mesh(EXPLICIT):
        return jax.reshard(x, NamedSharding(EXPLICIT, P("x")))


def _mapped(x):
    return jax.shard_map(lambda x: x * 2, mesh=AUTO, in_specs=P("x"), out_specs=P("x"))(
        x
    )


EXAMPLES = [
    Example("constraint", _constrained, (X,)),
    Example("printed", _printed, (X,)),
    Example("pure_callback", lambda x: jax.pure_callback(np.sin, SHAPE, x), (X,)),
    Example("io_callback", lambda x: io_callback(np.sin, SHAPE, x), (X,)),
]

TRACED = [Example("reshard", _resharded, (X,)), Example("shard_map", _mapped, (X,))]
