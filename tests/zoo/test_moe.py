from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import meshwright as mw
from zoo import moe
from zoo.experts import Experts, Routing, balance_loss, in_groups, route
from zoo.once import once

GROUPS, TOKENS, EXPERTS = 2, 8, 4
ROUTING = Routing(EXPERTS, group=TOKENS)

# Whole numbers, so that scores are often equal and never nearly so.
LOGITS = arrays(
    np.float32,
    (GROUPS, TOKENS, EXPERTS),
    elements=st.integers(-3, 3).map(float),
)
CHOICES, CAPACITIES = st.sampled_from((1, 2)), st.sampled_from((1, 2, 3, TOKENS))

routed = jax.jit(route, static_argnums=(1, 2))


def favourites(logits, choices):
    """The experts of each token, best first; of equal ones the first is better."""
    return np.argsort(-logits, axis=-1, kind="stable")[..., :choices]


# -- routing -----------------------------------------------------------------------


@given(LOGITS, CHOICES, CAPACITIES)
def test_an_expert_serves_at_most_its_capacity_and_a_place_one_token(
    logits, choices, capacity
):
    dispatch = np.asarray(routed(logits, choices, capacity)[0].dispatch)
    assert set(np.unique(dispatch)) <= {0.0, 1.0}
    assert dispatch.sum(axis=1).max() <= 1
    assert dispatch.sum(axis=(1, 3)).max() <= capacity


@given(LOGITS, CHOICES, CAPACITIES)
def test_what_is_kept_and_what_is_dropped_are_all_choices(logits, choices, capacity):
    routes, measured = routed(logits, choices, capacity)
    total = GROUPS * TOKENS * choices
    wanted = favourites(logits, choices).reshape(GROUPS, -1)
    excess = sum(
        max(0, np.count_nonzero(group == expert) - capacity)
        for group in wanted
        for expert in range(EXPERTS)
    )
    assert np.sum(routes.dispatch) == total - excess
    assert measured.dropped * total == pytest.approx(excess, abs=1e-4)


@given(LOGITS, CHOICES, CAPACITIES)
def test_places_go_to_first_choices_then_second_in_the_order_of_tokens(
    logits, choices, capacity
):
    expected = np.zeros((GROUPS, TOKENS, EXPERTS, capacity))
    wanted = favourites(logits, choices)
    for group in range(GROUPS):
        used = [0] * EXPERTS
        for choice in range(choices):
            for token in range(TOKENS):
                expert = wanted[group, token, choice]
                if used[expert] < capacity:
                    expected[group, token, expert, used[expert]] = 1
                used[expert] += 1
    np.testing.assert_array_equal(
        routed(logits, choices, capacity)[0].dispatch, expected
    )


@settings(max_examples=20)
@given(LOGITS, CAPACITIES)
def test_one_choice_weighs_by_its_probability_and_two_sum_to_one(logits, capacity):
    likely = np.asarray(jax.nn.softmax(logits, axis=-1))
    for choices in (1, 2):
        routes, _ = routed(logits, choices, capacity)
        kept = np.sum(routes.dispatch, axis=(2, 3)) == choices
        weight = np.sum(routes.combine, axis=(2, 3))[kept]
        expected = likely.max(axis=-1)[kept] if choices == 1 else 1.0
        np.testing.assert_allclose(weight, expected, rtol=1e-5)
        assert not np.any(np.where(routes.dispatch == 0, routes.combine, 0))


def test_balance_is_one_where_the_router_knows_no_difference():
    measured = routed(np.zeros((GROUPS, TOKENS, EXPERTS), np.float32), 2, TOKENS)[1]
    assert measured.balance == pytest.approx(1.0)
    assert measured.router_z == pytest.approx(np.log(EXPERTS) ** 2)


def test_balance_is_one_where_tokens_are_spread_evenly():
    logits = np.tile(20 * np.eye(EXPERTS, dtype=np.float32), (GROUPS, 2, 1))
    assert routed(logits, 1, TOKENS)[1].balance == pytest.approx(1.0)


def test_balance_is_the_number_of_experts_where_one_is_asked_by_all():
    logits = np.zeros((GROUPS, TOKENS, EXPERTS), np.float32)
    logits[..., 2] = 50
    assert routed(logits, 1, TOKENS)[1].balance == pytest.approx(EXPERTS)


@given(LOGITS)
def test_balance_is_switchs_sum_in_each_group(logits):
    """Alpha aside: N times the sum over experts of f P, equations 4 to 6."""
    likely = np.asarray(jax.nn.softmax(logits, axis=-1))
    expected = 0.0
    for group, first in zip(likely, favourites(logits, 1)[..., 0], strict=True):
        part = np.bincount(first, minlength=EXPERTS) / TOKENS
        expected += EXPERTS * np.sum(part * group.mean(axis=0)) / GROUPS
    assert routed(logits, 1, 1)[1].balance == pytest.approx(expected, rel=1e-5)


def test_descending_the_balance_loss_spreads_tokens():
    logits = jax.random.normal(jax.random.key(0), (1, 64, EXPERTS)) + jnp.arange(4.0)

    def loss(shift):
        scores = logits + shift
        first = jax.nn.one_hot(jnp.argmax(scores, axis=-1), EXPERTS)
        return balance_loss(jax.nn.softmax(scores), first)

    shift, slope = jnp.zeros(EXPERTS), jax.jit(jax.grad(loss))
    for _ in range(50):
        shift = shift - slope(shift)
    before, after = (routed(logits + s, 1, 16)[1] for s in (jnp.zeros(EXPERTS), shift))
    assert before.dropped > 0.4
    assert after.dropped < 0.15
    assert after.balance < before.balance


def test_capacity_is_the_even_share_times_its_factor_rounded_up():
    assert Routing(64).capacity(2048) == 64
    assert Routing(48).capacity(2048) == 86
    assert Routing(8, choices=1, capacity_factor=1.25).capacity(100) == 16


@given(st.integers(1, 64), st.integers(1, 8), st.integers(1, 512))
def test_a_factor_of_experts_by_choices_gives_room_to_all(experts, choices, tokens):
    choices = min(experts, choices)
    routing = Routing(experts, choices, capacity_factor=experts / choices)
    assert routing.capacity(tokens) == tokens


def test_tokens_are_grouped_in_their_order():
    x = jnp.arange(4 * 6).reshape(4, 6, 1)
    np.testing.assert_array_equal(in_groups(x, 8).ravel(), np.arange(24))
    assert in_groups(x, 8).shape == (3, 8, 1)
    assert in_groups(x, 100).shape == (1, 24, 1)
    words = "groups of 7 do not divide 24 tokens, 4 sequences of 6"
    with pytest.raises(ValueError, match=words):
        in_groups(x, 7)


# -- the layer ---------------------------------------------------------------------

X_SHAPE = (GROUPS, TOKENS, 6)


@cache
def layer(**changes):
    """(module, its parameters, its compiled form)."""
    module = Experts(replace(ROUTING, **changes), d_ff=5)
    params = once(module.init)(jax.random.key(0), jnp.zeros(X_SHAPE))["params"]
    return module, params, jax.jit(module.apply)


def roomy(choices, shared=0):
    """A layer in which nothing is dropped."""
    factor = EXPERTS / choices
    return layer(choices=choices, shared=shared, capacity_factor=factor)


def dense(params, routing, x):
    """Every token through its experts, one by one, with room for all."""
    y = np.zeros_like(x)
    scores = x @ np.asarray(params["router"]["kernel"])
    for where in np.ndindex(*x.shape[:2]):
        token, score = x[where], scores[where]
        likely = np.exp(score - score.max())
        likely /= likely.sum()
        best = favourites(likely, routing.choices)
        weight = likely[best] / (likely[best].sum() if routing.choices > 1 else 1)
        for expert, share in zip(best, weight, strict=True):
            up, down = (np.asarray(params[name][expert]) for name in ("up", "down"))
            y[where] += share * (np.maximum(token @ up, 0) @ down)
    if routing.shared:
        shared = params["shared"]
        hidden = np.maximum(x @ np.asarray(shared["up"]["kernel"]), 0)
        y += hidden @ np.asarray(shared["down"]["kernel"])
    return y


@pytest.mark.parametrize(("choices", "shared"), [(1, 0), (2, 0), (2, 2)])
@settings(max_examples=25)
@given(seed=st.integers(0, 2**32 - 1))
def test_with_room_for_all_a_mixture_is_its_experts_one_by_one(choices, shared, seed):
    module, params, apply = roomy(choices, shared)
    x = np.random.default_rng(seed).standard_normal(X_SHAPE).astype(np.float32)
    y, measured = apply({"params": params}, x)
    assert measured.dropped == 0
    np.testing.assert_allclose(y, dense(params, module.routing, x), atol=1e-4)


def test_a_token_without_a_place_adds_nothing_to_the_residual_stream():
    """All tokens of a group are alike and ask the same expert, which has two places."""
    _, params, apply = layer(choices=1, capacity_factor=1.0)
    x = jnp.broadcast_to(jax.random.normal(jax.random.key(1), (6,)), X_SHAPE)
    y, measured = apply({"params": params}, x)
    assert np.all(np.any(y[:, :2] != 0, axis=-1))
    assert not np.any(y[:, 2:])
    assert measured.dropped == pytest.approx(1 - 2 / TOKENS)


def test_a_token_without_a_place_still_visits_the_shared_expert():
    _, params, apply = layer(choices=1, capacity_factor=1.0, shared=1)
    x = jnp.broadcast_to(jax.random.normal(jax.random.key(1), (6,)), X_SHAPE)
    y, _ = apply({"params": params}, x)
    hidden = jax.nn.relu(x @ params["shared"]["up"]["kernel"])
    shared = hidden @ params["shared"]["down"]["kernel"]
    np.testing.assert_allclose(y[:, 2:], shared[:, 2:], atol=1e-5)
    assert not np.allclose(y[:, :2], shared[:, :2], atol=1e-3)


def test_groups_do_not_touch_each_other():
    _, params, apply = layer()
    x = jax.random.normal(jax.random.key(1), X_SHAPE)
    before, after = (
        apply({"params": params}, value)[0] for value in (x, x.at[1].set(0.5))
    )
    np.testing.assert_allclose(before[0], after[0], atol=1e-6)


@pytest.mark.parametrize("choices", [1, 2])
def test_the_router_learns_through_the_weights_of_answers(choices):
    module, params, _ = roomy(choices)
    x = jax.random.normal(jax.random.key(1), X_SHAPE)

    def total(params):
        return jnp.sum(module.apply({"params": params}, x)[0])

    gradient = jax.jit(jax.grad(total))(params)
    assert np.abs(gradient["router"]["kernel"]).max() > 1e-3


def test_the_router_computes_in_32_bits_where_experts_do_not():
    module, params, _ = roomy(2)
    x = jax.random.normal(jax.random.key(1), X_SHAPE).astype(jnp.bfloat16)
    exact, expected = module.apply({"params": params}, x.astype(jnp.float32))
    short = module.clone(dtype=jnp.bfloat16)
    rounded, measured = short.apply({"params": params}, x)
    assert rounded.dtype == jnp.bfloat16
    assert measured == expected
    np.testing.assert_allclose(rounded.astype(jnp.float32), exact, atol=0.1)


# -- the model ---------------------------------------------------------------------


def test_every_mixture_adds_its_losses_to_the_cross_entropy():
    routing = replace(moe.SWITCH, group=8, balance=0.3, router_z=0.2)
    config = replace(moe.TINY, layers=4, sequence=8, batch=2, routing=routing)

    @jax.jit
    def measured(key):
        tokens = jax.random.randint(key, (2, 8), 0, config.vocab)
        params = moe.start(config, key).params
        return moe.losses(config, params, {"inputs": tokens, "targets": tokens})

    total, told = measured(jax.random.key(0))
    beside = 2 * (0.3 * told["balance"] + 0.2 * told["router_z"])
    assert total == pytest.approx(float(told["loss"] + beside), rel=1e-5)


def test_a_step_tells_what_it_dropped_and_carries_on_the_same_state():
    step, (state, batch) = moe.targets["moe_380m"](layers=2)
    after, told = jax.eval_shape(step, state, batch)
    assert set(told) == {"loss", "balance", "router_z", "dropped"}
    assert all(value.dtype == jnp.float32 for value in told.values())
    assert jax.tree.map(lambda x: (x.shape, x.dtype), after) == jax.tree.map(
        lambda x: (x.shape, x.dtype), state
    )


def test_every_other_layer_has_experts():
    config = moe.SIZES["moe_70b"]
    _, (state, _) = moe.targets["moe_70b"]()
    layers = state.params["stack"]["layers"]
    assert layers["experts"]["up"].shape == (16, 64, 2048, 16_384)
    assert layers["mlp"]["up"]["kernel"].shape == (16, 2048, 16_384)
    assert config.layers == 32


def told_of(config):
    """The means of the first and of the last ten of sixty steps."""
    told = list(moe.learn(config, seed=1, steps=60))
    return (
        {name: np.mean([step[name] for step in part]) for name in told[0]}
        for part in (told[:10], told[-10:])
    )


@pytest.mark.slow
@pytest.mark.parametrize("config", [moe.TINY, moe.TINY_SWITCH], ids=["top-2", "top-1"])
def test_both_ways_to_route_learn_and_come_to_drop_less(config):
    first, last = told_of(config)
    assert first["loss"] > 3.5
    assert last["loss"] < 2.7
    assert last["dropped"] < 0.75 * first["dropped"]
    assert last["balance"] < 1.3


@pytest.mark.slow
def test_without_its_loss_the_balance_is_not_found():
    careless = replace(moe.GSHARD, balance=0.0)
    _, last = told_of(replace(moe.TINY, routing=careless))
    assert last["balance"] > 1.5


def test_expert_parallelism_over_the_batchs_axes_sends_tokens_by_all_to_all():
    """In remade layers twice forward, twice remade and twice backward."""
    fn, args = moe.targets["moe_380m"](layers=4)
    plan = mw.partition(fn, moe.workload.mesh, moe.schedules["dp2+ep"]).plan(*args)
    assert plan.counts["all_to_all"] == 2 * 6
    sources = {c.source for c in plan.collectives if c.kind == "all_to_all"}
    assert all("zoo/experts.py" in source for source in sources)
    cut = {leaf.path: tuple(leaf.spec) for leaf in plan.inputs}
    for name in ("up", "down"):
        spec = cut[f"state.params.stack.layers.experts.{name}"]
        assert spec[1] == ("model",)


def test_a_sequence_longer_than_the_learned_positions_is_refused():
    model, longer = moe.MoE(moe.TINY), jnp.zeros((1, 65), jnp.int32)
    with pytest.raises(ValueError, match="65 is longer than the 64 learned positions"):
        jax.eval_shape(model.init, jax.random.key(0), longer)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"layers": 3}, "every other layer has experts: layers are even, not 3"),
        ({"heads": 5}, "5 heads do not divide d_model 64; give a divisor"),
        ({"heads": 0}, "heads is at least 1, not 0"),
        (
            {"batch": 5, "sequence": 5},
            "groups of 7 do not divide 25 tokens, 5 sequences of 5; give a divisor, or "
            "25 or more",
        ),
        ({"dtype": "int8"}, "there is no dtype 'int8'; there are float32"),
        ({"remat": "some"}, "there is no rematerialisation 'some'; there are none"),
    ],
    ids=lambda x: next(iter(x)) if isinstance(x, dict) else "",
)
def test_a_model_that_cannot_be_is_refused(wrong, words):
    with pytest.raises(ValueError, match=words):
        replace(moe.TINY, **{"routing": Routing(4, group=7), "sequence": 7} | wrong)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"experts": 0}, "experts is at least 1, not 0"),
        ({"group": 0}, "group is at least 1, not 0"),
        ({"choices": 5}, "a token asks 1 to 4 of 4 experts, not 5"),
        ({"choices": 0}, "choices is at least 1, not 0"),
        ({"capacity_factor": 0}, "capacity_factor is above 0, not 0: experts need"),
        ({"capacity_factor": -1.5}, "capacity_factor is at least 0, not -1.5"),
        ({"shared": -1}, "shared is at least 0, not -1"),
        ({"balance": -0.1}, "balance is at least 0, not -0.1"),
        ({"router_z": -0.1}, "router_z is at least 0, not -0.1"),
    ],
    ids=lambda x: next(iter(x)) if isinstance(x, dict) else "",
)
def test_a_routing_that_cannot_be_is_refused(wrong, words):
    with pytest.raises(ValueError, match=words):
        replace(ROUTING, **wrong)
