from __future__ import annotations

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
_COMBINING = ("add", "subtract", "multiply", "min", "max")


def _rows(kind):
    return lambda table, ids, rows: getattr(table.at[ids], kind)(rows)


def _scatter(table, ids, updates, **numbers):
    defaults = {"inserted_window_dims": (), "scatter_dims_to_operand_dims": ()}
    numbers = lax.ScatterDimensionNumbers(**(defaults | numbers))
    return lax.scatter_add(table, ids, updates, numbers)


def _op(fn, *args):
    """The one scatter of a function."""
    op = last_op(fn, *args)
    assert op.kind.startswith("scatter")
    return op


@pytest.mark.parametrize("kind", _COMBINING)
def test_batch_dims_of_scatter_indices_are_reductions(kind):
    rule = rule_for(_rows(kind), f32(8, 4), IDS, f32(2, 3, 4))
    assert letters(rule) == "ba,cd-,cda->ba"
    assert rule.reductions == {2, 3}


@pytest.mark.parametrize(
    ("kind", "monoid", "special"),
    [
        ("add", "sum", {1, 2, 3}),
        ("subtract", "sum", {1, 2, 3}),
        ("multiply", "prod", {1, 2, 3}),
        ("min", "min", {1}),
        ("max", "max", {1}),
    ],
)
def test_only_the_first_device_starts_from_the_operand(kind, monoid, special):
    rule = rule_for(_rows(kind), f32(8, 4), IDS, f32(2, 3, 4))
    assert (rule.monoid, rule.special) == (monoid, special)


def test_a_plain_scatter_is_not_split_over_its_updates():
    rule = rule_for(_rows("set"), f32(8, 4), IDS, f32(2, 3, 4))
    assert letters(rule) == "ba,---,--a->ba"


def test_scatters_of_bools_and_keys_have_no_reductions():
    assert not rule_for(_rows("max"), f32(8) > 0, IDS, f32(2, 3) > 0).reductions
    keys = rule_of(_op(lambda k, i: k.at[i].set(k[0]), jax.random.split(KEY, 8), IDS))
    assert letters(keys) == "a,---,--->a"


KEY = jax.random.key(0)


@pytest.mark.parametrize(
    ("table", "ids", "updates", "numbers", "expected"),
    [
        (
            f32(3, 8, 5),
            IDS[..., None],
            f32(2, 3, 5),
            {
                "update_window_dims": (2,),
                "inserted_window_dims": (1,),
                "scatter_dims_to_operand_dims": (1,),
                "operand_batching_dims": (0,),
                "scatter_indices_batching_dims": (1,),
            },
            "acb,da-,dab->acb",
        ),
        (
            f32(8, 4),
            IDS[0, :1],
            f32(3, 4),
            {"update_window_dims": (0, 1), "scatter_dims_to_operand_dims": (0,)},
            "-a,-,-a->-a",
        ),
        (
            f32(8, 4),
            IDS[0, :1],
            f32(1, 4),
            {"update_window_dims": (0, 1), "scatter_dims_to_operand_dims": (0,)},
            "ba,-,-a->ba",
        ),
        (
            f32(8, 4),
            IDS[0, :2],
            f32(),
            {
                "update_window_dims": (),
                "inserted_window_dims": (0, 1),
                "scatter_dims_to_operand_dims": (1, 0),
            },
            "ba,-,->ba",
        ),
    ],
)
def test_whole_windows_batch_and_scattered_dims_are_factors(
    table, ids, updates, numbers, expected
):
    op = _op(lambda *args: _scatter(*args, **numbers), table, ids, updates)
    rule = rule_of(op)
    rule.check(op)
    assert letters(rule) == expected


@pytest.mark.parametrize(
    ("kind", "linear"),
    [
        ("set", ({0, 2},)),
        ("add", ({0, 2},)),
        ("subtract", ({0, 2},)),
        ("multiply", ({0},)),
        ("min", ()),
        ("max", ()),
    ],
)
def test_a_scatter_is_linear_in_operand_and_updates_jointly(kind, linear):
    rule = rule_for(_rows(kind), f32(8, 4), IDS, f32(2, 3, 4))
    assert rule.linear == tuple(map(frozenset, linear))


def test_a_scatter_with_a_function_is_not_linear():
    op = _op(lambda x, i: x.at[i].apply(jnp.sin), f32(8, 4), IDS[0])
    assert not rule_of(op).linear


@pytest.mark.parametrize("factor", [1, 2])
@pytest.mark.parametrize("kind", _COMBINING)
def test_a_scatter_into_a_split_operand_needs_no_collective(kind, factor):
    op = _op(_rows(kind), f32(8, 4), IDS, f32(2, 3, 4))
    rule = rule_of(op)
    if factor not in rule.special:
        return
    axes = tuple(("x",) if f == factor else () for f in range(4))
    cut = OpCut(axes, tuple(2 if a else 1 for a in axes))
    table, share = ((4, 4), 2) if factor == 1 else ((8, 4), 1)
    local = (
        Value(table, "float32"),
        Value((share, 3, 1), "int32"),
        Value((share, 3, 4), "float32"),
    )
    builder = Builder(Mesh({"x": 2}))
    (found,) = rule.expand(builder, op, local, cut)
    assert found.shape == table
    assert not {o.kind for o in builder.ops} & set(COLLECTIVES)


def test_indices_of_other_chunks_are_dropped_though_the_mode_clips():
    op = _op(lambda x, i: x.at[i].add(1.0, mode="clip"), f32(8), IDS[0])
    rule = rule_of(op)
    builder = Builder(Mesh({"x": 2}))
    local = (Value((4,), "float32"), Value((3, 1), "int32"), op.operands[2])
    rule.expand(builder, op, local, OpCut((("x",), ()), (2, 1)))
    assert builder.ops[-1].params["mode"].name == "FILL_OR_DROP"
