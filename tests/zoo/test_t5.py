import math
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import meshwright as mw
from zoo import t5
from zoo.beam import Decoding, beam
from zoo.once import once
from zoo.span_corruption import END, PAD, VOCAB
from zoo.t5_blocks import Attention, Config, Positions, bucket
from zoo.workload import num_parameters

SMALL = Config(2, 32, 2, 16, 48, vocab=VOCAB, inputs=24, targets=7, batch=4)

HOW = Decoding(length=7, end=END, pad=PAD)


@pytest.fixture(scope="module", params=["T5", "T5 1.1"])
def small(request):
    """A configuration, its parameters, and made-up inputs without padding."""
    config = SMALL
    if request.param == "T5 1.1":
        config = replace(SMALL, gated=True, tied=False)
    params = once(partial(t5.start, config))(jax.random.key(0)).params
    tokens = jax.random.randint(jax.random.key(1), (4, 24 + 7), 3, VOCAB)
    return config, params, tokens[:, :24], tokens[:, 24:]


PLAIN = pytest.mark.parametrize(
    "small", ["T5", pytest.param("T5 1.1", marks=pytest.mark.slow)], indirect=True
)
"""Masks and beams are the same whichever blocks make the scores."""


def scores(config, params, inputs, decoder_inputs):
    return t5.T5(config).apply({"params": params}, inputs, decoder_inputs)


@pytest.mark.parametrize(("size", "layers"), [("small", 6), ("large", 24)])
def test_parameters_are_their_closed_form(size, layers):
    """Matrices of attention (4 D N H) and MLPs (2 D F), scales, buckets, embedding."""
    c = t5.SIZES[size]
    attention, mlp = 4 * c.d_model * c.heads * c.d_head, 2 * c.d_model * c.d_ff
    blocks = layers * (3 * attention + 2 * mlp + 5 * c.d_model)
    rest = 2 * c.d_model + 2 * c.buckets * c.heads + c.vocab * c.d_model
    _, (state, _) = t5.targets[size]()
    assert num_parameters(state.params) == blocks + rest


def test_t5_large_has_770_million_parameters_with_its_own_matrix_for_scores():
    _, (state, _) = t5.targets["large"]()
    config = t5.SIZES["large"]
    own = config.vocab * config.d_model
    assert num_parameters(state.params) + own == 770_567_168


def test_adafactor_keeps_rows_and_columns_for_matrices():
    _, (state, _) = t5.targets["base"]()
    assert isinstance(state.optimizer[0], optax.FactoredState)
    assert num_parameters(state.optimizer) < 0.01 * num_parameters(state.params)


def written_out(distance, both):
    """The bucket of one distance, with 32 of them and a largest distance of 128."""
    half = 16 if both else 32
    later = half if both and distance > 0 else 0
    distance = abs(distance) if both else max(-distance, 0)
    near = half // 2
    if distance < near:
        return later + distance
    far = math.log(distance / near) / math.log(128 / near) * (half - near)
    return later + min(near + int(far), half - 1)


@pytest.mark.parametrize("both", [True, False])
def test_near_distances_have_their_own_bucket_and_far_ones_share(both):
    distances = np.array([d for d in range(-300, 300) if abs(d) not in (16, 32, 64)])
    found = bucket(jnp.asarray(distances), SMALL, both=both)
    expected = [written_out(d, both) for d in distances.tolist()]
    np.testing.assert_array_equal(found, expected)
    assert len(np.unique(found)) == (31 if both else 32)


def test_a_bias_depends_on_the_distance_alone():
    positions = Positions(SMALL, both=True)
    params = positions.init(jax.random.key(0), jnp.arange(9), 9)
    bias = positions.apply(params, jnp.arange(9), 9)
    np.testing.assert_array_equal(bias[..., 1:, 1:], bias[..., :-1, :-1])
    assert len(np.unique(bias[0, 0, 4])) == 9


def test_scores_of_attention_are_not_divided_by_the_root_of_d_head():
    attention, x = Attention(SMALL), jax.random.normal(jax.random.key(0), (2, 5, 32))
    zeros = jnp.zeros((1, 1, 5, 5))

    def run(module, x):
        return module(x, module.keys(x), zeros)

    params = attention.init(jax.random.key(1), x, method=run)
    found = attention.apply(params, x, method=run)
    kernel = {name: params["params"][name]["kernel"] for name in ("q", "k", "v", "out")}
    q, k, v = (jnp.einsum("bsd,dnh->bnsh", x, kernel[name]) for name in "qkv")
    weights = jax.nn.softmax(q @ k.swapaxes(2, 3), axis=-1)
    expected = jnp.einsum("bnsh,nhd->bsd", weights @ v, kernel["out"])
    np.testing.assert_allclose(found, expected, atol=1e-4)


@PLAIN
def test_dropout_hides_the_same_channels_at_all_positions(small):
    config, params, inputs, _ = small
    model = t5.T5(replace(config, dropout=0.5))

    @jax.jit
    def encoded(seed):
        numbers = {"dropout": jax.random.key(seed)}
        variables = {"params": params}
        return model.apply(variables, inputs, method=t5.T5.encode, rngs=numbers)

    hidden = np.asarray(encoded(0) == 0)
    assert (hidden == hidden[:, :1]).all()
    assert 0.3 < hidden.mean() < 0.7
    assert (hidden != np.asarray(encoded(1) == 0)).any()


@PLAIN
def test_layers_written_out_compute_what_the_loop_does(small):
    config, params, inputs, text = small

    def layer(stack, i):
        return jax.tree.map(lambda w: w[i], stack)

    parts = {n: p for n, p in params.items() if n not in ("encoder", "decoder")}
    numbers = range(config.layers)
    stack = params["encoder"]["layers"]
    parts["encoder"] = {f"layer_{i}": layer(stack, i) for i in numbers}
    parts |= {f"decoder_{i}": layer(params["decoder"], i) for i in numbers}
    unrolled = replace(config, scan=False)
    found, expected = (
        jax.jit(partial(scores, each))(weights, inputs, text)
        for each, weights in ((unrolled, parts), (config, params))
    )
    np.testing.assert_allclose(found, expected, atol=1e-4)
    found, expected = (
        jax.jit(partial(t5.decode, each, HOW))(weights, inputs)
        for each, weights in ((unrolled, parts), (config, params))
    )
    np.testing.assert_array_equal(found, expected)


@PLAIN
def test_a_target_does_not_see_later_ones_and_sees_all_inputs(small):
    config, params, inputs, text = small
    run = jax.jit(partial(scores, config))
    before = run(params, inputs, text)
    after = run(params, inputs, text.at[:, 4:].set(70))
    np.testing.assert_allclose(before[:, :4], after[:, :4], atol=1e-4)
    assert not np.allclose(before[:, 4:], after[:, 4:], atol=1e-2)
    other = run(params, inputs.at[:, -1].add(1), text)
    assert not np.allclose(before[:, 0], other[:, 0], atol=1e-4)


@PLAIN
def test_padding_of_the_inputs_changes_nothing(small):
    config, params, inputs, text = small
    longer = jnp.pad(inputs, ((0, 0), (0, 9)), constant_values=PAD)
    run = jax.jit(partial(scores, config))
    np.testing.assert_allclose(
        run(params, inputs, text), run(params, longer, text), atol=1e-3
    )


def test_decoding_with_caches_makes_the_same_tokens_as_without(small):
    config, params, inputs, _ = small
    cached, anew = (
        jax.jit(partial(way, config, HOW))(params, inputs)
        for way in (t5.decode, t5.decode_anew)
    )
    assert cached.shape == (4, 7)
    np.testing.assert_array_equal(cached, anew)


@PLAIN
def test_a_beam_with_caches_makes_the_same_tokens_as_without(small):
    config, params, inputs, _ = small
    how = replace(HOW, width=3)
    cached, anew = (
        jax.jit(partial(way, config, how, method=beam))(params, inputs)
        for way in (t5.decode, t5.decode_anew)
    )
    np.testing.assert_array_equal(cached.tokens, anew.tokens)
    np.testing.assert_allclose(
        cached.log_probability, anew.log_probability, rtol=1e-3, atol=1e-3
    )


@PLAIN
def test_a_beam_of_one_writes_what_greedy_decoding_does(small):
    config, params, inputs, _ = small
    one = jax.jit(partial(t5.decode, config, HOW, method=beam))(params, inputs)
    expected = jax.jit(partial(t5.decode, config, HOW))(params, inputs)
    np.testing.assert_array_equal(one.tokens[:, 0], expected)


@pytest.mark.slow
def test_a_beam_whose_batch_is_cut_writes_what_one_device_does():
    fn, args = t5.tiny_beam()
    cut = [mw.data_parallel("data", "inputs"), mw.megatron("model", vocabulary=False)]
    report = mw.partition(fn, {"data": 4, "model": 2}, cut).check(*args)
    assert report.ok, str(report)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"heads": 0}, "heads is at least 1, not 0"),
        ({"targets": 0}, "targets is at least 1, not 0"),
        ({"buckets": 30}, "a multiple of 4, not 30"),
        ({"max_distance": 16}, "max_distance 16 leaves no room for far buckets"),
    ],
)
def test_a_config_that_does_not_fit_says_why(changes, words):
    with pytest.raises(ValueError, match=words):
        replace(SMALL, **changes)


@pytest.mark.slow
def test_the_tiny_model_learns_to_write_what_was_dropped():
    """Sentinels and ends alone are 4 of 14 tokens; letters are learned beside them."""
    losses = [row["loss"] for row in t5.train(seed=0, steps=60)]
    assert losses[0] > 5.5
    assert np.mean(losses[-5:]) < 2.7


@pytest.mark.slow
def test_a_step_lowers_the_loss_of_its_batch(small):
    config, params, inputs, text = small
    state = t5.new_state(params, t5.optimizer(config))
    step, losses = jax.jit(t5.train_step(config)), []
    batch = {"inputs": inputs, "targets": text}
    batch["decoder_inputs"] = jnp.pad(text[:, :-1], ((0, 0), (1, 0)))
    for _ in range(4):
        state, loss = step(state, batch)
        losses.append(float(loss))
    assert losses == sorted(losses, reverse=True)
