"""Shardings in the user's own code, as a plan lists them."""

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import meshwright as mw

MESH = {"data": 4, "model": 2}
X = jax.ShapeDtypeStruct((8, 16), jnp.float32)


def mesh_of(**sizes):
    return AbstractMesh(
        tuple(sizes.values()), tuple(sizes), axis_types=(AxisType.Auto,) * len(sizes)
    )


def constrained(mesh, spec):
    """The plan of a function with one constraint."""

    def fn(x):
        return lax.with_sharding_constraint(jnp.tanh(x), NamedSharding(mesh, spec)) * 2

    return mw.partition(fn, MESH, [mw.shard({"x": 1}, "model")]).plan(X)


def test_a_constraint_that_cuts_is_listed_with_its_line():
    plan = constrained(mesh_of(data=4, model=2), P("data"))
    (fixed,) = plan.fixed
    assert (fixed.kind, fixed.spec) == ("with_sharding_constraint", (("data",), ()))
    assert fixed.whole == ("model",)  # the spec leaves it out
    assert "test_fixed.py:" in fixed.source
    assert (
        f"  with_sharding_constraint ({fixed.source}) f32[8, 16] [data, -], "
        "whole along 'model'"
    ) in str(plan).splitlines()
    assert mw.Plan.from_json(plan.to_json()).fixed == plan.fixed


def test_constraints_that_decide_nothing_are_not_listed():
    assert not constrained(mesh_of(data=1, model=1), P("data")).fixed
    assert not constrained(mesh_of(other=4), P(P.UNCONSTRAINED)).fixed
    assert "fixed in the code" not in str(constrained(mesh_of(data=1), P()))


def test_a_shard_map_is_listed():
    def fn(x):
        mesh = mesh_of(data=4, model=2)
        return jax.shard_map(
            jnp.tanh, mesh=mesh, in_specs=P("data"), out_specs=P("data")
        )(x)

    (fixed,) = mw.partition(fn, MESH).plan(X).fixed
    assert (fixed.kind, fixed.spec, fixed.whole) == (
        "shard_map", (("data",), ()), ("model",)
    )  # fmt: skip
