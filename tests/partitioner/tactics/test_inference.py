"""Inference layouts: bytes of the closed form, numbers of one device, refusals."""

import math

import jax
import jax.numpy as jnp
import pytest

import meshwright as mw
from benchmarks.papers.inference_layouts import Pair, layouts
from benchmarks.papers.published import PALM_540B
from meshwright.app.tactic_text import parse_tactics
from meshwright.errors import TacticError
from zoo import palm

AXES = ["x", "y", "z"]
MESH = {"x": 2, "y": 2, "z": 2}
CUBE = {"x": 4, "y": 4, "z": 4}
NAMES = {
    "weight_stationary_1d": "WS 1D",
    "weight_stationary_2d": "WS 2D",
    "weight_gathered_x": "WG X",
    "weight_gathered_xy": "WG XY",
    "weight_gathered_xyz": "WG XYZ",
}


@pytest.mark.parametrize("layout", NAMES)
def test_a_layout_receives_the_bytes_of_the_closed_form(layout):
    """An all-reduce counts twice: it is a reduce-scatter and an all-gather."""

    def layer(tokens, up, down):
        return jax.nn.gelu(tokens @ up) @ down

    e, f, tokens = PALM_540B.d_model, PALM_540B.d_ff, 2048
    shapes = [
        jax.ShapeDtypeStruct(size, jnp.bfloat16)
        for size in ((tokens, e), (e, f), (f, e))
    ]
    plan = mw.partition(layer, CUBE, [mw.inference(layout, AXES)]).plan(*shapes)
    total = 0.0
    for found in plan.collectives:
        chips = math.prod(CUBE[axis] for axis in found.axes)
        times = 2 if found.kind == "all_reduce" else 1
        total += times * found.bytes * (chips - 1) / chips
    wanted = layouts(Pair(e, f), tokens, (4, 4, 4))[NAMES[layout]]
    assert total == pytest.approx(sum(each.received_bytes for each in wanted))


@pytest.mark.parametrize(
    ("layout", "attention"),
    [("weight_stationary_2d", "batch"), ("weight_gathered_xy", "heads")],
)
@pytest.mark.parametrize("target", [palm.tiny_prefill, palm.tiny_decode])
def test_a_laid_out_decoder_computes_as_one_device(target, layout, attention):
    fn, args = target()
    tactic = mw.inference(layout, AXES, attention=attention)
    step = mw.partition(fn, MESH, [tactic])
    assert step.check(*args).ok


def test_the_2d_layout_stores_weights_as_the_gathered_layouts_do():
    fn, args = palm.tiny_decode()

    def stored(layout, **options):
        tactic = mw.inference(layout, AXES, **options)
        plan = mw.partition(fn, MESH, [tactic]).plan(*args)
        return {b.path: b.spec for b in plan.inputs if b.path.startswith("params")}

    stationary = stored("weight_stationary_2d", vocabulary=False)
    assert stationary["params.blocks.up"] == ((), ("x",), ("z", "y"))
    assert stationary["params.blocks.out"] == ((), ("z", "y"), (), ("x",))
    assert stored("weight_gathered_xyz") == stationary


def test_stationary_layouts_cut_the_vocabulary_of_heads_and_tables():
    """The table may have another number of words than the head."""

    def serve(p, tokens):
        h = p["table"][tokens] + p["places"][jnp.arange(16)]
        h = h + jax.nn.gelu(h @ p["up"]) @ p["down"]
        return jax.lax.top_k(h[:, -1] @ p["head"], 4)[1]

    p = {"table": (96, 32), "places": (16, 32), "up": (32, 64), "down": (64, 32)}
    p = {k: jnp.ones(shape) for k, shape in {**p, "head": (32, 128)}.items()}
    tokens = jnp.arange(32 * 16).reshape(32, 16) % 96
    step = mw.partition(serve, MESH, [mw.inference("weight_stationary_2d", AXES)])
    specs = {each.path: each.spec for each in step.plan(p, tokens).inputs}
    assert specs["p.head"] == (("x",), ("z", "y"))
    assert specs["p.table"] == (("z", "y"), ("x",))
    assert specs["p.places"] == ((), ())
    assert step.check(p, tokens).ok
    whole = mw.inference("weight_stationary_1d", "x", vocabulary=False)
    kept = mw.partition(serve, MESH, [whole]).plan(p, tokens).inputs
    assert not any(any(i.spec) for i in kept if i.path in ("p.head", "p.table"))


def test_attention_by_batch_cuts_the_cache_over_all_devices():
    fn, args = palm.tiny_decode()

    def keys(attention):
        tactic = mw.inference("weight_stationary_2d", AXES, attention=attention)
        plan = mw.partition(fn, MESH, [tactic]).plan(*args)
        return next(leaf.spec for leaf in plan.inputs if leaf.path == "caches.k")

    assert sorted(keys("batch")[1]) == AXES
    assert not any(keys("heads"))


def test_heads_narrower_than_the_model_are_a_pair_as_well():
    """Heads of PaLM 540B have 16,384 elements together, its model 18,432."""
    fn, args = palm.decode_targets["palm_540b"](layers=1, batch=64)
    tactic = mw.inference("weight_stationary_2d", AXES)
    plan = mw.partition(fn, CUBE, [tactic]).plan(*args)
    specs = {leaf.path: leaf.spec for leaf in plan.inputs}
    assert specs["params.blocks.q"] == ((), ("x",), ("z", "y"), ())


def test_a_layout_is_printed_as_the_call_that_makes_it():
    tactic = mw.inference("weight_gathered_x", AXES, attention="batch")
    assert parse_tactics(str(tactic)) == (tactic,)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (("3d", AXES), "no layout '3d'; there are weight_stationary_1d, "),
        (("weight_gathered_xyz", ["x", "y"]), "wanted at least 3 different ones"),
        (("weight_stationary_2d", "x"), "wanted at least 2 different ones"),
        (("weight_stationary_2d", ["x", "x"]), "wanted at least 2 different ones"),
    ],
)
def test_wrong_layouts_and_axes_are_refused(call, words):
    with pytest.raises(TacticError, match=words):
        mw.inference(*call)


def test_attention_is_by_heads_or_by_batch():
    with pytest.raises(TacticError, match="wanted 'heads' or 'batch'"):
        mw.inference("weight_stationary_2d", AXES, attention="tokens")


def test_a_program_without_a_pair_of_products_is_refused():
    step = mw.partition(
        lambda x, w: x @ w, MESH, [mw.inference(*(list(NAMES)[1], AXES))]
    )
    with pytest.raises(TacticError, match="finds no pair of matmuls"):
        step.plan(jnp.ones((8, 8)), jnp.ones((8, 8)))


def test_a_depthwise_convolution_between_a_pair_is_cut_by_features():
    def convolve(x, kernel, groups=1):
        return jax.lax.conv_general_dilated(
            x,
            kernel,
            (1, 1),
            "SAME",
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
            feature_group_count=groups,
        )

    def serve(x, up, deep, down):
        h = jax.nn.relu(convolve(jax.nn.relu(convolve(x, up)), deep, 32))
        return convolve(h, down)

    sizes = (8, 8, 8, 16), (1, 1, 16, 32), (3, 3, 1, 32), (1, 1, 32, 16)
    args = [jax.ShapeDtypeStruct(size, jnp.float32) for size in sizes]
    tactic = mw.inference("weight_stationary_1d", "x")
    plan = mw.partition(serve, MESH, [tactic]).plan(*args)
    cuts = {
        leaf.path: leaf.spec.index(("x",)) for leaf in plan.inputs if any(leaf.spec)
    }
    assert cuts == {"up": 3, "deep": 3, "down": 2}
    assert plan.counts["all_reduce"] == 1
