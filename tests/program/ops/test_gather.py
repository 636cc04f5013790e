from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from meshwright.machine import Mesh
from meshwright.program.ir import Value
from meshwright.program.ops import COLLECTIVES, Builder, OpCut, rule_of
from tests.program.ops.letters import f32, last_op, letters, rule_for

IDS = np.zeros((2, 3), np.int32)


def _gather(sizes, mode="clip", fill_value=None, **numbers):
    numbers = {"collapsed_slice_dims": (), "start_index_map": ()} | numbers
    return partial(
        lax.gather,
        dimension_numbers=lax.GatherDimensionNumbers(**numbers),
        slice_sizes=sizes,
        mode=mode,
        fill_value=fill_value,
    )


_ROWS = {"offset_dims": (2,), "collapsed_slice_dims": (0,), "start_index_map": (0,)}
_BATCHED = {
    "offset_dims": (2,),
    "collapsed_slice_dims": (1,),
    "start_index_map": (1,),
    "operand_batching_dims": (0,),
    "start_indices_batching_dims": (1,),
}
_PAIRS = {
    "offset_dims": (0,),
    "collapsed_slice_dims": (0, 2),
    "start_index_map": (2, 0),
}
_WINDOW = {"offset_dims": (0, 1), "start_index_map": (0,)}


@pytest.mark.parametrize(
    ("fn", "table", "ids", "expected"),
    [
        (_gather((1, 4), **_ROWS), f32(8, 4), IDS[..., None], "dc,ab-->abc"),
        (_gather((1, 1, 5), **_BATCHED), f32(3, 8, 5), IDS[..., None], "bdc,ab-->abc"),
        (_gather((1, 5, 1), **_PAIRS), f32(8, 5, 4), IDS[:, :2], "dbc,a-->ba"),
        (_gather((3, 4), **_WINDOW), f32(8, 4), IDS[0, :1], "-a,-->-a"),
        (_gather((1, 4), **_WINDOW), f32(8, 4), IDS[0, :1], "ba,-->-a"),
        (_gather((8, 2), **_WINDOW), f32(8, 4), IDS[0, :1], "a-,-->a-"),
    ],
)
def test_whole_windows_batch_and_indexed_dims_are_factors(fn, table, ids, expected):
    assert letters(rule_for(fn, table, ids)) == expected


@pytest.mark.parametrize("dtype", ["float32", "int8", "bool"])
def test_a_dim_indexed_by_elements_is_a_reduction(dtype):
    rule = rule_for(_gather((1, 4), **_ROWS), f32(8, 4).astype(dtype), IDS[..., None])
    assert rule.special == rule.reductions == {3}
    assert rule.monoid == ("or" if dtype == "bool" else "sum")


def test_a_gather_of_keys_has_no_reduction():
    op = last_op(lambda i: jax.random.split(jax.random.key(0), 8)[i], IDS)
    assert op.kind == "gather"
    assert letters(rule_of(op)) == "-,ab-->ab"


@pytest.mark.parametrize(
    ("mode", "fill_value", "is_linear"),
    [
        ("clip", None, True),
        ("promise_in_bounds", None, True),
        ("fill", 0.0, True),
        ("fill", None, True),
        ("fill", 7.0, False),
    ],
)
def test_a_gather_is_linear_unless_its_fill_value_would_add_up(
    mode, fill_value, is_linear
):
    fn = _gather((1, 4), mode, fill_value, **_ROWS)
    linear = rule_for(fn, f32(8, 4), IDS[..., None]).linear
    assert linear == ((frozenset({0}),) if is_linear else ())


def test_a_gather_that_fills_with_the_largest_integer_is_not_linear():
    fn = _gather((1, 4), "fill", **_ROWS)
    assert not rule_for(fn, np.zeros((8, 4), np.int32), IDS[..., None]).linear


def test_a_gather_from_a_split_table_needs_no_collective():
    op = last_op(lambda t, i: t[i], f32(8, 4), IDS)
    rule = rule_of(op)
    cut = OpCut(((), (), (), ("x",)), (1, 1, 1, 4))
    builder = Builder(Mesh({"x": 4}))
    local = (Value((2, 4), "float32"), Value((2, 3, 1), "int32"))
    (rows,) = rule.expand(builder, op, local, cut)
    assert rows.shape == (2, 3, 4)
    assert not {o.kind for o in builder.ops} & set(COLLECTIVES)


def test_local_windows_have_the_local_extent():
    op = last_op(lambda t, i: jnp.take(t, i, axis=0), f32(8, 4), IDS)
    params = rule_of(op).local_params(op, ((8, 2), (2, 3, 1)), ((2, 3, 2),))
    assert params["slice_sizes"] == (1, 2)
