"""What a printed plan says first: figures, long source lines, uncut work, folded leaves."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import meshwright as mw
from meshwright.app.explain.fold_leaves import fold_leaves
from meshwright.app.explain.overview import undivided_lines
from meshwright.app.output.numbers import show_si
from meshwright.app.record.parts import Leaf
from meshwright.machine.memory_size import show_bytes


def struct(*shape):
    return jax.ShapeDtypeStruct(shape, np.float32)


def attention(params, x):
    heads = jax.numpy.einsum("bsd,dnh->bsnh", x, params["qkv"])
    out = jax.numpy.einsum("bsnh,nhd->bsd", heads, params["out"])
    return ((jax.nn.relu(out @ params["up"]) @ params["down"]) ** 2).mean()


def step(params, x):
    loss, grads = jax.value_and_grad(attention)(params, x)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), loss


def shapes(heads):
    return (
        {
            "qkv": struct(64, heads, 8), "out": struct(heads, 8, 64),
            "up": struct(64, 256), "down": struct(256, 64),
        },
        struct(8, 32, 64),
    )  # fmt: skip


@pytest.fixture(scope="module")
def megatron():
    return mw.partition(step, {"model": 16}, [mw.megatron("model")]).plan(*shapes(8))


def test_work_that_megatron_leaves_uncut_is_named_with_the_reason(megatron):
    """Heads of 8 by 8 in 16 parts: attention stays whole."""
    text = str(megatron)
    assert "not cut along 'model': " in text
    assert "no tactic cuts it; 16 parts do not divide dim " in text
    assert all("16 parts do not divide" in each.why for each in megatron.uncut)
    assert any(each.share > 0.1 for each in megatron.uncut)


def test_a_found_plan_that_divides_no_work_says_so_first():
    whole = mw.partition(step, {"model": 16}, []).plan(*shapes(8))
    found = replace(whole, recorded_candidates=(("auto",),))
    assert str(found).startswith(
        "NO WORK IS DIVIDED: each of the 16 devices computes all of it\n"
    )
    assert "DIVIDED" not in str(whole)
    part = replace(found.uncut[0], share=0.85)
    assert undivided_lines(replace(found, uncut=(part,))) == [
        "85.0 % OF THE WORK IS NOT DIVIDED: each of the 16 devices computes that much"
    ]
    half = replace(part, share=0.5)
    assert undivided_lines(replace(found, uncut=(half,))) == []


def test_nothing_is_said_about_work_where_all_is_cut():
    fits = mw.partition(step, {"model": 8}, [mw.megatron("model")]).plan(*shapes(8))
    assert "not cut along" not in str(fits)


def test_shares_of_uncut_work_are_of_all_flops(megatron):
    whole = mw.partition(step, {"model": 16}).plan(*shapes(8))
    assert sum(each.share for each in whole.uncut) == pytest.approx(1, abs=0.01)
    assert sum(each.share for each in megatron.uncut) < 0.5


def test_loops_count_with_their_iterations():
    def loop(w, v, x):
        x = jax.lax.scan(lambda h, _: (h @ w, None), x, None, length=9)[0]
        return x @ v

    args = struct(64, 64), struct(64, 64), struct(8, 64)
    whole = mw.partition(loop, {"a": 2}).plan(*args)
    assert [each.share for each in whole.uncut] == pytest.approx([0.9, 0.1])


def test_a_plan_without_collectives_says_so_in_place_of_a_table():
    text = str(mw.partition(step, {"model": 16}).plan(*shapes(8)))
    assert "\nno collectives\n" in text
    assert "collectives per step" not in text


def test_parts_of_axes_are_explained_where_shardings_name_them():
    def fold(x):
        return mw.tag(x.reshape(16, 16), "rows")

    tactics = [mw.shard({"tag:rows": 0}, "data")]
    plan = mw.partition(fold, {"data": 4}, tactics).plan(struct(2, 8, 16))
    assert "x: f32[2, 8, 16] [data:0, data:1, -]" in str(plan)
    told = "parts of axes: 'data:0' (the first factor of 'data', 4 = 2 x 2), 'data:1'"
    assert told in str(plan)
    assert told in str(mw.Plan.from_json(plan.to_json()))


def test_figures_come_first(megatron):
    lines = str(megatron.on("tpu-v5e")).splitlines()
    assert lines[0] == "step: mesh model=16, 16 devices of tpu-v5e, gather shared"
    titles = [line.split()[0] for line in lines[1:6]]
    assert titles == ["step", "memory", "parameters", "computing", "collectives"]
    assert "MFU" in lines[1]
    assert "of 15.8 GiB on each device" in lines[2]
    assert lines[3].split()[1:] == ["41.0", "k"]
    assert any(line.startswith("source lines that take most") for line in lines)


def test_the_times_of_source_lines_and_limits_add_up(megatron):
    figures = megatron.on("tpu-v5e").figures
    compute_s = figures.breakdown["compute"]
    assert sum(figures.compute_bounds.values()) == pytest.approx(compute_s)
    assert sum(line.compute_s for line in figures.lines) <= compute_s * (1 + 1e-9)
    seconds = [line.seconds for line in figures.lines]
    assert seconds == sorted(seconds, reverse=True)


def test_a_plan_from_json_prints_the_same(megatron):
    plan = megatron.on("tpu-v5e")
    assert str(mw.Plan.from_json(plan.to_json())) == str(plan)


def test_a_plan_without_a_machine_says_how_to_name_one(megatron):
    assert 'name a machine: plan.on("tpu-v5e")' in str(megatron).splitlines()[1]


def test_the_full_page_has_a_line_for_each_leaf(megatron):
    text = megatron.describe(full=True)
    for leaf in megatron.inputs:
        assert f"  {leaf}" in text


def leaf(path, spec=(("a",),)):
    return Leaf(path, (8,), "float32", spec)


FOLDED = {
    "p.{params, mu}.blocks.*.w": ["p.params.blocks.0.w", "p.params.blocks.1.w",
                                  "p.mu.blocks.0.w", "p.mu.blocks.1.w"],
    "params.blocks_*.w": ["params.blocks_0.w", "params.blocks_31.w"],
    "{a, b, c, d, 2 more}.w": [f"{name}.w" for name in "abcdef"],
    "{w, a.w}": ["w", "a.w"],
    "{params, mu.params}.w": ["params.w", "mu.params.w"],
    "only": ["only"],
}  # fmt: skip


@pytest.mark.parametrize("text", FOLDED)
def test_leaves_alike_share_a_line(text):
    paths = FOLDED[text]
    assert fold_leaves([leaf(p) for p in paths]) == [
        (f"{text}: f32[8] [a]", len(paths))
    ]


def test_leaves_of_other_shardings_keep_lines_of_their_own():
    leaves = [leaf("mu.w"), leaf("params.w", ((),))]
    assert len(fold_leaves(leaves)) == 2


def test_sizes_are_in_binary_units_and_tiny_amounts_are_zero():
    assert [show_bytes(n) for n in (0, 1023, 2**30, 3 * 2**40)] == [
        "0 B", "0.999 KiB", "1.00 GiB", "3.00 TiB"
    ]  # fmt: skip
    assert [show_si(s, "s") for s in (3.5e-18, 0.0, 2e-12, 1.5)] == [
        "0 s", "0 s", "2.00 ps", "1.50 s"
    ]  # fmt: skip


# -- in notebooks ----------------------------------------------------------------------


def test_a_plan_is_html_with_all_text_escaped(megatron):
    evil = megatron.on("tpu-v5e").named("<script>alert(1)</script>")
    html = evil._repr_html_()
    assert "<script" not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert "not cut along &#x27;model&#x27;" in html
    assert "://" not in html


def test_a_plan_without_a_search_has_no_candidates(megatron):
    with pytest.raises(mw.errors.PlanError, match="made of given tactics"):
        _ = megatron.candidates


@pytest.mark.parametrize(("dtype", "is_told"), [("bfloat16", True), ("float16", False)])
def test_products_of_a_dtype_that_the_chip_lacks_are_named(dtype, is_told):
    args = [jax.ShapeDtypeStruct((64, 64), dtype)] * 2
    plan = mw.partition(jnp.matmul, {"data": 8}, []).plan(*args).on("v100")
    told = f"{dtype} converted to float32, as v100 has no products of it"
    assert (told in str(plan)) is is_told
    assert mw.Plan.from_json(plan.to_json()).figures == plan.figures
