"""Ops of unknown cost are named, and figures are then lower bounds; rules state costs."""

import json

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import sparse

import meshwright as mw
from meshwright.errors import RuleError
from meshwright.program.rules.unpriced import is_unpriced
from tests.program.ops.test_numbers import all_examples, captured

ROWS, SUMMED, COLUMNS = 8192, 4096, 2048


def shape(*dims, dtype=jnp.bfloat16):
    return jax.ShapeDtypeStruct(dims, dtype)


def call(name):
    """A step that calls a library's function for the product of two matrices."""

    def step(x, w):
        result = shape(x.shape[0], w.shape[1])
        return jax.ffi.ffi_call(name, result)(x, w)

    return step


def plan_of(name, where=("x", 0)):
    args = shape(ROWS, SUMMED), shape(SUMMED, COLUMNS)
    tactics = [mw.shard(dict([where]), "d")]
    return mw.partition(call(name), {"d": 8}, tactics).plan(*args).on("h100")


def test_an_op_of_unknown_cost_makes_figures_lower_bounds_in_every_output(tmp_path):
    plan = plan_of("unknown_product")
    (named,) = plan.unpriced
    assert named.startswith("ffi_call:unknown_product (")
    assert "test_unpriced.py:" in named
    text = str(plan)
    assert "step          at least" in text
    assert "memory        at least" in text
    assert named in text
    assert named in plan._repr_html_()
    assert json.loads(plan.to_json())["unpriced"] == [named]
    page = tmp_path / "plan.html"
    plan.report(page)
    assert "at least" in page.read_text()
    assert named in page.read_text()
    assert mw.Plan.from_json(plan.to_json()).unpriced == plan.unpriced


def matmul_cost(op):
    left, right = op.operands
    return mw.Cost(products=2 * left.shape[0] * left.shape[1] * right.shape[1])


mw.rule("ffi_call:test_product", cost=matmul_cost)(lambda op: "ij,jk->ik")
mw.rule("ffi_call:test_stream", cost=lambda op: mw.Cost(num_bytes=1e9))(
    lambda op: "ij,jk->ik"
)
mw.rule("ffi_call:test_wrong", cost=lambda op: 7)(lambda op: "ij,jk->ik")


@pytest.mark.parametrize("where", [("x", 0), ("w", 1), ("w", 0)])
def test_a_stated_cost_is_that_of_the_same_product_in_jax(where):
    stated = plan_of("test_product", where)
    assert not stated.unpriced
    assert not stated.whole
    args = shape(ROWS, SUMMED), shape(SUMMED, COLUMNS)
    tactics = [mw.shard(dict([where]), "d")]
    plain = mw.partition(lambda x, w: x @ w, {"d": 8}, tactics).plan(*args).on("h100")
    assert stated.counts == plain.counts
    assert stated.mfu == pytest.approx(plain.mfu, rel=0.2)  # no waves of tiles
    assert stated.step_time_s == pytest.approx(plain.step_time_s, rel=0.2)


def test_a_search_cuts_an_op_by_its_rule_and_stated_cost():
    args = shape(ROWS, SUMMED), shape(SUMMED, COLUMNS)
    found = mw.autoplan(call("test_product"), args, machine="h100", chips=8, budget_s=1)
    assert found.step_time_s < 1.5 * plan_of("test_product").step_time_s


def test_the_call_gets_the_results_of_one_device():
    args = shape(ROWS, SUMMED), shape(SUMMED, COLUMNS)
    step = mw.partition(call("test_product"), {"d": 8}, [mw.shard({"x": 0}, "d")])
    text = step.trace(*args).lower(lowering_platforms=("cuda",)).as_text()
    (line,) = (x for x in text.splitlines() if "custom_call @test_product" in x)
    assert f"-> tensor<{ROWS // 8}x{COLUMNS}xbf16>" in line


def test_stated_bytes_bound_the_time():
    plan = plan_of("test_stream")
    assert plan.step_time_s == pytest.approx(1e9 / 3.35e12, rel=0.2)


def test_a_cost_of_another_type_is_refused():
    with pytest.raises(
        RuleError, match=r"the cost of 'ffi_call:test_wrong' is 7; wanted"
    ):
        plan_of("test_wrong")
    with pytest.raises(RuleError, match="numbers of 0 or more"):
        mw.Cost(flops=-1)
    with pytest.raises(RuleError, match="is 3; wanted a function of an Op"):
        mw.rule("ffi_call:test_number", cost=3)
    mw.rule("ffi_call:test_broken", cost=lambda op: 1 / 0)(lambda op: "ij,jk->ik")
    with pytest.raises(RuleError, match="test_broken' failed: ZeroDivisionError"):
        plan_of("test_broken")


def test_ops_that_nothing_counts():
    examples = all_examples() + all_examples("TRACED")
    ops = (op for each in examples for op in captured(each).program.walk())
    assert {op.kind for op in ops if is_unpriced(op)} <= {
        "hessenberg", "io_callback", "pure_callback", "random_gamma", "schur",
        "shard_map", "tridiagonal",
    }  # fmt: skip


def test_products_of_sparse_arrays_are_cut_and_priced_as_the_ops_they_are_made_of():
    rows, columns, stored = 2**14, 256, 2**18

    def product(data, indices, x):
        return sparse.BCOO((data, indices), shape=(rows, rows)) @ x

    def same(data, indices, x):
        picked = data[:, None] * x[indices[:, 1]]
        return jax.ops.segment_sum(picked, indices[:, 0], rows)

    float32 = jnp.float32
    args = (
        shape(stored, dtype=float32),
        shape(stored, 2, dtype=jnp.int32),
        shape(rows, columns, dtype=float32),
    )
    plans = [
        mw.partition(fn, {"d": 8}, [mw.shard({"x": 1}, "d")]).plan(*args).on("tpu-v5e")
        for fn in (product, same)
    ]
    for plan in plans:
        assert not plan.collectives
        assert not plan.whole
        assert not plan.unpriced
        assert plan.outputs[0].spec == ((), ("d",))
    assert plans[0].step_time_s == pytest.approx(plans[1].step_time_s, rel=0.5)
