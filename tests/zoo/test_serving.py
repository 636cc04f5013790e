from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import meshwright as mw
from zoo import gpt, serving
from zoo.gpt_cached import empty_caches, forward, to_multi_head, to_multi_query

SMALL = serving.Config(
    gpt.Config(2, 32, 4, 64, 64, sequence=16, batch=4),
    prompt=6, new=8, cache=16, batch=4,
)  # fmt: skip

FORMS = {
    "multi-head": {},
    "multi-query": {"multi_query": True},
    "sampled": {"temperature": 0.7},
    "sampled from the best five": {"temperature": 0.7, "top_k": 5, "multi_query": True},
}

PARTS_OF_OTHERS = ("multi-query", "sampled")

MESH = mw.Mesh({"data": 8, "model": 4})

TABLE = {"bp": (0, 0, 0, 0), "mp": (0, 98_304, 0, 0), "bp+mp": (0, 98_304, 0, 0)}
"""PartIR, table 3, rows of IT32: gathers, all-reduces, reduce-scatters, all-to-alls."""

CLOSED_FORMS = {
    "bp": lambda layers, new: (0, 0, 0, 0),
    "mp": lambda layers, new: (0, 2 * layers * new, 0, 0),
    "bp+mp": lambda layers, new: (0, 2 * layers * new, 0, 0),
    "bp+mq+mp": lambda layers, new: (0, 2 * layers * new, 0, 2 * layers * (new - 1)),
}


def arguments(config, seed=0):
    """Parameters and prompts of made-up tokens.

    The embedding is small, so that a token's own does not outdo all that was heard and
    the best next token is another.
    """
    key = jax.random.key(seed)
    prompt = jax.random.randint(key, (config.batch, config.prompt), 0, 64)
    params = serving.init(config, key)
    params["embedding"] *= 0.1
    return params, {"prompt": prompt, "key": key}


def collectives(size, schedule, **changes):
    """(gathers, all-reduces, reduce-scatters, all-to-alls) of serving a full size."""
    fn, args = serving.targets[size](**changes)
    step = mw.partition(fn, MESH, serving.schedules[schedule], gather="at_use")
    counts = step.plan(*args).counts
    assert counts["permute"] == 0
    kinds = ("all_gather", "all_reduce", "reduce_scatter", "all_to_all")
    return tuple(counts[kind] for kind in kinds)


@pytest.mark.parametrize(
    "form",
    [
        pytest.param(form, marks=pytest.mark.slow if form in PARTS_OF_OTHERS else [])
        for form in FORMS
    ],
)
def test_tokens_are_the_same_with_and_without_a_cache(form):
    config = replace(SMALL, **FORMS[form])
    params, batch = arguments(config)
    served = jax.jit(partial(serving.serve, config))(params, batch)
    anew = jax.jit(partial(serving.serve_anew, config))(params, batch)
    assert served.shape == (config.batch, config.new)
    np.testing.assert_array_equal(served, anew)
    assert len(np.unique(served)) > 4, "one token over and over proves little"


def test_a_longer_cache_changes_nothing():
    params, batch = arguments(SMALL)
    tokens = [
        jax.jit(partial(serving.serve, replace(SMALL, cache=cache)))(params, batch)
        for cache in (14, 32)
    ]
    np.testing.assert_array_equal(*tokens)


def test_a_sequence_longer_than_the_cache_is_refused():
    words = "a sequence of 14, longer than the cache of 13 positions"
    with pytest.raises(ValueError, match=words):
        replace(SMALL, cache=13)
    params, batch = arguments(SMALL)
    caches = empty_caches(params, batch=4, positions=5)
    words = "sequence of 6 is longer than the cache of 5 positions"
    with pytest.raises(ValueError, match=words):
        forward(params, batch["prompt"], 0, caches)


def test_prompts_of_another_length_are_refused():
    params, batch = arguments(replace(SMALL, prompt=7))
    with pytest.raises(ValueError, match="prompts of 7 tokens where 6 are configured"):
        serving.serve(SMALL, params, batch)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"temperature": -1.0}, "temperature is at least 0, not -1.0"),
        ({"top_k": 0}, "top_k is at least 1, not 0"),
        ({"top_k": 65}, "top_k is at most the 64 tokens there are, not 65"),
        ({"top_k": 9}, "temperature 0 draws nothing, so that top_k 9 means nothing"),
        ({"new": 0}, "new is at least 1, not 0"),
        ({"prompt": -2}, "prompt is at least 1, not -2"),
        ({"batch": 0}, "batch is at least 1, not 0"),
    ],
)
def test_a_config_that_does_not_fit_says_why(changes, words):
    with pytest.raises(ValueError, match=words):
        replace(SMALL, **changes)


def test_a_multi_query_model_has_the_mean_of_all_heads():
    params = gpt.init(SMALL.model, jax.random.key(0)).params
    one = to_multi_query(params)["blocks"][0]
    keys = params["blocks"][0]["qkv"][1]
    np.testing.assert_allclose(one["kv"][0], keys.mean(axis=0), rtol=1e-5, atol=1e-6)
    again = to_multi_query(to_multi_head(to_multi_query(params)))["blocks"][0]
    np.testing.assert_allclose(again["kv"], one["kv"], rtol=1e-5, atol=1e-6)


def test_one_head_keeps_a_smaller_cache():
    model = SMALL.model
    sizes = {}
    for form in (False, True):
        config = replace(SMALL, multi_query=form)
        caches = empty_caches(arguments(config)[0], batch=4, positions=16)
        sizes[form] = sum(leaf.size for leaf in jax.tree.leaves(caches))
    assert sizes[False] == model.heads * sizes[True]


def test_draws_follow_the_scores_and_the_temperature():
    scores = jnp.log(jnp.array([0.5, 0.3, 0.15, 0.05]))
    many = jnp.broadcast_to(scores, (20_000, 4))
    for temperature in (1.0, 0.5):
        config = replace(SMALL, temperature=temperature)
        drawn = serving.pick(config, many, jax.random.key(0))
        found = np.bincount(drawn, minlength=4) / len(many)
        expected = np.exp(scores / temperature)
        np.testing.assert_allclose(found, expected / expected.sum(), atol=0.015)


def test_only_the_best_k_are_drawn():
    scores = jax.random.normal(jax.random.key(1), (500, 64))
    config = replace(SMALL, temperature=5.0, top_k=3)
    drawn = serving.pick(config, scores, jax.random.key(0))
    rank = (scores > jnp.take_along_axis(scores, drawn[:, None], axis=1)).sum(axis=1)
    assert set(rank.tolist()) == {0, 1, 2}


def test_temperature_zero_and_the_best_one_are_the_same():
    scores = jax.random.normal(jax.random.key(1), (50, 64))
    best = serving.pick(SMALL, scores, None)
    config = replace(SMALL, temperature=2.0, top_k=1)
    np.testing.assert_array_equal(best, serving.pick(config, scores, jax.random.key(0)))


def test_the_closed_forms_give_partirs_table():
    assert {name: CLOSED_FORMS[name](32, 1536) for name in TABLE} == TABLE


@pytest.mark.parametrize("schedule", CLOSED_FORMS)
def test_a_schedule_costs_what_its_closed_form_says(schedule):
    size = "it32_multi_query" if "mq" in schedule else "it32"
    found = collectives(size, schedule, model=replace(gpt.T32, layers=2))
    assert found == CLOSED_FORMS[schedule](2, 1536)


@pytest.mark.slow
@pytest.mark.parametrize("schedule", TABLE)
@pytest.mark.parametrize("size", ["it32", "it32_multi_query", "it32_sampled"])
def test_it32_costs_what_partirs_table_says(size, schedule):
    assert collectives(size, schedule) == TABLE[schedule]


@pytest.mark.slow
def test_a_cache_cut_along_the_batch_costs_two_all_to_alls_a_layer_and_token():
    found = collectives("it32_multi_query", "bp+mq+mp")
    assert found == (0, 98_304, 0, 98_240)


@pytest.mark.slow
@pytest.mark.parametrize("make", [serving.tiny_multi_query, serving.tiny_sampled])
def test_tokens_are_those_of_one_device(make):
    fn, args = make()
    for schedule in ("bp+mp", "bp+mq+mp"):
        mesh = {"data": 4, "model": 2}
        report = mw.partition(fn, mesh, serving.schedules[schedule]).check(*args)
        assert report.ok, str(report)


@pytest.mark.slow
def test_the_model_that_is_served_learns_the_text():
    losses = [row["loss"] for row in serving.train(seed=0, steps=25)]
    assert losses[0] > 5.0
    assert losses[-1] < 3.2
