"""The serving loop of docs/howto/inference.md, in each layout, beside one device."""

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import meshwright as mw

PAGE = Path(__file__).parents[2] / "docs/howto/inference.md"
MESH = {"x": 2, "y": 2, "z": 2}
STEPS = 16
LAYOUTS = [
    "weight_stationary_1d",
    "weight_stationary_2d",
    "weight_gathered_x",
    "weight_gathered_xy",
    "weight_gathered_xyz",
]
QUICK = ("weight_stationary_2d", "batch"), ("weight_gathered_xyz", "heads")


@pytest.fixture(scope="module")
def page():
    """The names that the page defines for its model."""
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
    (model,) = (code for code in blocks if "def prefill(" in code)
    names = {"jax": jax, "jnp": jnp}
    exec(model, names)
    return names


@pytest.fixture(scope="module")
def loop(page):
    """Weights, prompts, and the tokens and logits of one device."""
    params = page["init"](jax.random.key(0))
    shape = (page["BATCH"], page["PROMPT"])
    prompts = jax.random.randint(jax.random.key(1), shape, 0, page["VOCAB"])
    programs = jax.jit(page["prefill"]), jax.jit(page["decode"])
    return params, prompts, page["generate"](*programs, params, prompts, STEPS)


CASES = [
    pytest.param(layout, attention, marks=[] if case in QUICK else [pytest.mark.slow])
    for layout in LAYOUTS
    for attention in ("heads", "batch")
    for case in [(layout, attention)]
]


@pytest.mark.parametrize(("layout", "attention"), CASES)
def test_a_loop_generates_the_tokens_of_one_device(page, loop, layout, attention):
    params, prompts, (tokens, logits) = loop
    tactics = [mw.inference(layout, [*MESH], attention=attention)]
    prefill = mw.partition(page["prefill"], MESH, tactics)
    decode = mw.partition(page["decode"], MESH, tactics, donate_argnums=1)
    plan = prefill.plan(params, prompts)
    stored = prefill.init(page["init"], jax.random.key(0))
    cut = {leaf.path: leaf.spec for leaf in plan.inputs if any(leaf.spec)}
    products = {"q", "out", "up", "down"}
    assert {f"params.blocks.{name}.int8" for name in products} <= cut.keys()
    shards = stored["blocks"]["up"]["int8"].addressable_shards
    assert shards[0].data.size * 8 == stored["blocks"]["up"]["int8"].size
    found = page["generate"](prefill, decode, stored, prompts, STEPS)
    assert (found[0] == tokens).all()
    assert jnp.allclose(found[1], logits, rtol=1e-4, atol=1e-3)
