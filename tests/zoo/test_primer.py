import json
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from zoo import primer
from zoo.decoder import init
from zoo.layers import layer_norm
from zoo.once import once
from zoo.primer import TINY, CausalConv, PrimerBlock, model_of, primer_norm
from zoo.training import run


def normal(*shape, seed=0):
    return jax.random.normal(jax.random.key(seed), shape)


def weights(model):
    return once(partial(init, model))(jax.random.key(0))


def convolved(x, taps):
    return CausalConv().apply({"params": {"taps": taps}}, x)


def test_each_channel_sums_the_present_and_two_before_by_its_own_taps():
    x, taps = np.array(normal(2, 7, 3, 4)), np.array(normal(3, 3, 4, seed=1))
    expected = np.zeros_like(x)
    for position in range(7):
        for distance in range(min(3, position + 1)):
            expected[:, position] += taps[distance] * x[:, position - distance]
    np.testing.assert_allclose(convolved(x, taps), expected, rtol=1e-5, atol=1e-6)


def test_the_present_starts_with_a_half_and_the_past_with_a_sixth_each():
    taps = CausalConv().init(jax.random.key(0), normal(1, 4, 2, 2))["params"]["taps"]
    np.testing.assert_allclose(taps[0], 0.5)
    np.testing.assert_allclose(taps[1:], 1 / 6, rtol=1e-6)


def test_the_mean_of_x_times_its_centred_self_makes_a_layer_norm():
    x, scale, bias = 3 + normal(5, 64), normal(64, seed=1), normal(64, seed=2)
    np.testing.assert_allclose(
        primer_norm(x, scale, bias), layer_norm(x, scale, bias), rtol=1e-3, atol=1e-3
    )


@pytest.mark.parametrize("kind", ["primer_ez", "primer"])
def test_a_token_does_not_see_later_ones(kind):
    model = model_of(kind, TINY)
    params = weights(model)
    scores = jax.jit(lambda x: model.apply({"params": params}, x))
    tokens = jax.random.randint(jax.random.key(1), (2, 32), 0, 256)
    before, after = scores(tokens), scores(tokens.at[:, 20:].set(65))
    np.testing.assert_allclose(before[:, :20], after[:, :20], atol=1e-5)
    assert not np.allclose(before[:, 20:], after[:, 20:], atol=1e-2)


def test_taps_of_the_present_alone_make_a_plain_gpt_of_primer_ez():
    ez, plain = model_of("primer_ez", TINY), model_of("gpt", TINY)
    params = weights(ez)
    attention = params["stack"]["layers"]["attention"]
    alone = jnp.zeros((TINY.layers, 3, 4, 16)).at[:, 0].set(1.0)
    convolutions = {name: {"taps": alone} for name in attention if "Conv" in name}
    assert len(convolutions) == 3
    rest = {k: v for k, v in attention.items() if k not in convolutions}

    def scores(model, attention):
        layers = params["stack"]["layers"] | {"attention": attention}
        whole = params | {"stack": {"layers": layers}}
        return jax.jit(model.apply)({"params": whole}, jnp.arange(32)[None])

    np.testing.assert_allclose(
        scores(ez, rest | convolutions), scores(plain, rest), atol=1e-5
    )


def test_the_norm_stands_behind_the_mlp():
    """Without its scale nothing of the MLP is left: x + norm(mlp(x))."""
    x, mask = normal(1, 8, 64), jnp.tril(jnp.ones((8, 8), bool))
    block = PrimerBlock(TINY)
    init_block = once(block.init)
    params = init_block(jax.random.key(0), x, mask, jnp.arange(8))["params"]
    silent = {"scale": jnp.zeros(64), "bias": jnp.zeros(64)}

    @jax.jit
    def out(params):
        return block.apply({"params": params}, x, mask, jnp.arange(8))

    muted = params | {"mlp_norm": silent}
    deaf = muted | {"mlp": jax.tree.map(lambda w: 2 * w, params["mlp"])}
    np.testing.assert_array_equal(out(muted), out(deaf))
    assert not np.allclose(out(muted), out(params), atol=1e-3)


def test_queries_are_made_from_keys_by_one_square_matrix():
    model = model_of("primer", TINY)
    attention = weights(model)["stack"]["layers"]["attention"]
    assert set(attention) == {"k", "k_conv", "q", "v", "v_conv", "out"}
    assert attention["q"]["kernel"].shape == (2, 4, 16, 4, 16)


@pytest.mark.slow
@pytest.mark.parametrize("make", [primer.tiny, primer.tiny_primer])
def test_the_small_forms_learn_the_text(make):
    step, (state, _) = make()
    text = primer.text_batches(TINY, seed=0)
    losses = [told["loss"] for told in run(step, state, text, 60)]
    assert losses[0] > 5.0
    assert losses[-1] < 3.0


def test_a_kind_of_model_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match="no kind of model 'prime'; there are gpt"):
        model_of("prime", TINY)


def test_the_stored_run_reached_the_plain_gpts_loss_in_fewer_steps():
    """`python -m benchmarks zoo primer` makes it: three seeds, the same size."""
    stored = Path(__file__).parents[2] / "benchmarks" / "results" / "primer.json"
    found = json.loads(stored.read_text())["models"]
    plain = found["gpt"]["steps_to_target"]
    assert len(plain) == 3
    for kind in ("primer_ez", "primer"):
        steps = found[kind]["steps_to_target"]
        assert all(ours < theirs for ours, theirs in zip(steps, plain, strict=True))
        assert found[kind]["parameters"] < 1.02 * found["gpt"]["parameters"]
