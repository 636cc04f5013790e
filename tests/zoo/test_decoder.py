from dataclasses import replace
from functools import cache, partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from zoo.decoder import Config, Decoder, init, loss, shapes, train_step
from zoo.workload import num_parameters

LLAMA = Config(2, 32, 4, 64, 64, 16, 4, kv_heads=2)
GPT = replace(
    LLAMA, norm="layer", positions="learned", activation="gelu", gated=False, bias=True,
    tied=True, kv_heads=None,
)  # fmt: skip
KINDS = pytest.mark.parametrize("config", [LLAMA, GPT], ids=["llama", "gpt"])


def tokens_of(config, seed=0):
    shape = (config.batch, config.sequence)
    return jax.random.randint(jax.random.key(seed), shape, 0, config.vocab)


@cache
def made(config):
    """(model, parameters, tokens)."""
    model = Decoder(config)
    params = jax.jit(partial(init, model))(jax.random.key(0))
    return model, params, tokens_of(config)


@cache
def whole(config):
    """Loss and gradients at the parameters of `made`."""
    return loss_and_gradients(config, made(config)[1])


def loss_and_gradients(config, params):
    tokens = tokens_of(config)
    batch = {"inputs": tokens, "targets": jnp.roll(tokens, -1, axis=1)}
    return jax.jit(jax.value_and_grad(partial(loss, Decoder(config))))(params, batch)


@pytest.mark.parametrize(
    ("config", "blocks"), [(LLAMA, (5, 8, 64)), (GPT, (5,))], ids=["llama", "gpt"]
)
def test_attention_by_blocks_is_attention(config, blocks):
    """Blocks that divide the sequence, that do not, and that are longer than it."""
    for block in blocks:
        params = made(config)[1]
        parts = loss_and_gradients(replace(config, attention_block=block), params)
        same = partial(np.testing.assert_allclose, atol=2e-6)
        jax.tree.map(same, parts, whole(config))


@cache
def scores_of(config):
    """The compiled model, as a function of tokens."""
    model, params, _ = made(config)
    return jax.jit(lambda x: model.apply({"params": params}, x))


@KINDS
def test_a_token_does_not_see_later_ones(config):
    tokens, scores = made(config)[2], scores_of(config)
    before, after = scores(tokens), scores(tokens.at[:, 10:].set(1))
    np.testing.assert_allclose(before[:, :10], after[:, :10], atol=1e-5)
    assert not np.allclose(before[:, 10:], after[:, 10:], atol=1e-2)


@KINDS
def test_the_order_of_earlier_tokens_matters(config):
    tokens, scores = made(config)[2], scores_of(config)
    swapped = tokens.at[:, 0].set(tokens[:, 3]).at[:, 3].set(tokens[:, 0])
    assert not np.allclose(scores(tokens)[:, -1], scores(swapped)[:, -1], atol=1e-3)


def test_scanned_and_unrolled_layers_compute_the_same():
    scanned = made(LLAMA)[1]
    stack = scanned["stack"]["layers"]
    layers = {
        f"layer_{i}": jax.tree.map(lambda w, i=i: w[i], stack)
        for i in range(LLAMA.layers)
    }
    unrolled = scanned | {"stack": layers}
    expected, _ = whole(LLAMA)
    got, _ = loss_and_gradients(replace(LLAMA, scan=False), unrolled)
    assert got == pytest.approx(float(expected), rel=1e-6)


@pytest.mark.parametrize("remat", ["full", "dots"])
def test_what_is_kept_for_the_backward_pass_changes_no_number(remat):
    params = made(LLAMA)[1]
    remade = loss_and_gradients(replace(LLAMA, remat=remat), params)
    same = partial(np.testing.assert_allclose, atol=1e-5)
    jax.tree.map(same, whole(LLAMA), remade)


def test_scores_are_made_from_features_made_from_embeddings():
    model, params, tokens = made(LLAMA)

    def parts(tokens):
        bound = model.bind({"params": params})
        return bound.scores(bound.through(bound.embed(tokens)))

    at_once = scores_of(LLAMA)(tokens)
    np.testing.assert_allclose(jax.jit(parts)(tokens), at_once, atol=1e-6)


def test_a_mask_of_ones_lets_every_token_see_all():
    model, params, tokens = made(LLAMA)

    def features(tokens):
        bound = model.bind({"params": params})
        return bound.through(bound.embed(tokens), jnp.ones((1, 16, 16), bool))

    heard = jax.jit(features)
    before, after = heard(tokens), heard(tokens.at[:, -1].set(1))
    assert not np.allclose(before[:, 0], after[:, 0], atol=1e-4)


def test_positions_are_counted_from_where_they_start():
    """Rotary scores depend on distances only: a shift of all changes nothing."""
    model, params, tokens = made(LLAMA)

    @jax.jit
    def features(start):
        bound = model.bind({"params": params})
        return bound.through(bound.embed(tokens), positions=start + jnp.arange(16))

    np.testing.assert_allclose(features(0), features(5), atol=1e-4)


def test_bfloat16_computes_with_parameters_and_loss_of_32_bits():
    config = replace(LLAMA, dtype="bfloat16")
    model, params, tokens = made(config)
    state, value = jax.eval_shape(train_step(model), *shapes(model))
    kept = jax.tree.leaves((state.params, value))
    assert all(leaf.dtype == jnp.float32 for leaf in kept)
    exact = jax.jit(Decoder(LLAMA).apply)({"params": params}, tokens)
    rounded = jax.jit(model.apply)({"params": params}, tokens)
    np.testing.assert_allclose(rounded, exact, atol=0.1)
    assert not np.allclose(rounded, exact, atol=1e-5)


def test_key_value_heads_have_weights_of_their_own_number():
    params, _ = shapes(Decoder(LLAMA))[0][:2]
    attention = params["stack"]["layers"]["attention"]
    assert attention["q"]["kernel"].shape == (2, 32, 4, 8)
    assert attention["k"]["kernel"].shape == attention["v"]["kernel"].shape
    assert attention["k"]["kernel"].shape == (2, 32, 2, 8)


def test_tied_embeddings_save_one_matrix():
    tied = num_parameters(shapes(Decoder(replace(LLAMA, tied=True)))[0].params)
    untied = num_parameters(shapes(Decoder(LLAMA))[0].params)
    assert untied - tied == LLAMA.vocab * LLAMA.d_model


def test_a_family_brings_a_block_of_its_own():
    class Nothing(nn.Module):
        config: Config

        @nn.compact
        def __call__(self, x, mask, positions):
            del mask, positions
            return x

    model = Decoder(LLAMA, Nothing)
    params = model.init(jax.random.key(0), tokens_of(LLAMA))["params"]
    assert set(params) == {"embedding", "norm", "head"}


def test_a_sequence_longer_than_the_learned_positions_is_refused():
    model, params, _ = made(GPT)
    longer = jnp.zeros((1, 17), jnp.int32)
    with pytest.raises(ValueError, match="17 is longer than the 16 learned positions"):
        model.apply({"params": params}, longer)


def test_rotary_positions_have_no_longest_sequence():
    model, params, _ = made(LLAMA)
    longer = jnp.zeros((1, 40), jnp.int32)
    scores = jax.eval_shape(model.apply, {"params": params}, longer)
    assert scores.shape == (1, 40, 64)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (
            {"heads": 5},
            "5 heads do not divide d_model 32; give heads that do, or d_head",
        ),
        ({"kv_heads": 3}, "3 key-value heads do not divide 4 heads"),
        ({"d_head": 7}, "rotary positions turn pairs of features; d_head 7 is odd"),
        ({"layers": 0}, "layers is at least 1, not 0"),
        ({"sequence": -1}, "sequence is at least 1, not -1"),
        ({"kv_heads": 0}, "kv_heads is at least 1, not 0"),
        ({"d_head": -8}, "d_head is at least 1, not -8"),
        ({"norm": "batch"}, "there is no norm 'batch'; there are layer, rms"),
        ({"positions": "sine"}, "there is no kind of positions 'sine'; there are"),
        ({"activation": "sine"}, "there is no activation 'sine'; there are gelu"),
        ({"dtype": "int8"}, "there is no dtype 'int8'; there are float32, bfloat16"),
        (
            {"remat": "some"},
            "there is no rematerialisation 'some'; there are none, full",
        ),
    ],
    ids=lambda x: next(iter(x)) if isinstance(x, dict) else "",
)
def test_a_configuration_that_cannot_be_is_refused(wrong, words):
    with pytest.raises(ValueError, match=words):
        replace(LLAMA, **wrong)
