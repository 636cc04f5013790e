from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from zoo import gpt, gpt3
from zoo.layers import causal_attention, cross_entropy, rms_norm, rotary_table, rotate
from zoo.text import batches, load_text


def num_parameters(state):
    return sum(leaf.size for leaf in jax.tree.leaves(state.params))


def test_t32_has_nine_tensors_a_block_an_embedding_and_five_billion_parameters():
    _, (state, batch) = gpt.t32()
    assert len(jax.tree.leaves(state.params)) == 289 == 9 * 32 + 1
    assert 5.4e9 < num_parameters(state) < 5.6e9
    assert batch["inputs"].shape[0] == 48


def test_four_tensors_of_a_block_are_large():
    _, (state, _) = gpt.t32()
    large = {k for k, v in state.params["blocks"][0].items() if v.size > 4096}
    assert large == set(gpt.LARGE) - {"embedding"}


def test_t48_has_thirty_two_billion_parameters():
    _, (state, _) = gpt.t48()
    assert 32.0e9 < num_parameters(state) < 33.0e9


def test_t24_has_sixteen_tensors_a_block_and_two_more():
    _, (state, _) = gpt3.t24()
    assert len(jax.tree.leaves(state.params)) == 24 * 16 + 2


@cache
def traced_t32():
    """(its arguments, its jaxpr, shapes of the new state and the loss)."""
    fn, args = gpt.t32()
    jaxpr, results = jax.make_jaxpr(fn, return_shape=True)(*args)
    return args, jaxpr.jaxpr, results


def test_a_step_keeps_the_shapes_of_the_state():
    args, _, (state, loss) = traced_t32()
    assert jax.tree.map(lambda x: (x.shape, x.dtype), state) == jax.tree.map(
        lambda x: (x.shape, x.dtype), args[0]
    )
    assert loss.shape == ()


@pytest.mark.slow
def test_the_tiny_model_learns_the_text():
    fn, (state, _) = gpt.tiny()
    step, losses = jax.jit(fn), []
    text = batches(load_text(), gpt.TINY.batch, gpt.TINY.sequence, seed=0)
    for _, batch in zip(range(30), text, strict=False):
        state, loss = step(state, batch)
        losses.append(float(loss))
    assert losses[0] > 5.0
    assert losses[-1] < 3.0


def test_a_token_does_not_see_later_ones():
    _, (state, batch) = gpt.tiny()
    inputs = jnp.asarray(batch["inputs"])
    scores = jax.jit(gpt.logits)
    before = scores(state.params, inputs)
    after = scores(state.params, inputs.at[:, 40:].set(65))
    np.testing.assert_allclose(before[:, :40], after[:, :40], atol=1e-5)
    assert not np.allclose(before[:, 40:], after[:, 40:], atol=1e-2)


def test_uniform_logits_cost_the_logarithm_of_the_vocabulary():
    logits = jnp.full((2, 3, 50), 7.0)
    loss = cross_entropy(logits, jnp.zeros((2, 3), jnp.int32))
    assert loss == pytest.approx(np.log(50), rel=1e-6)


def test_a_normalised_vector_has_a_mean_square_of_one():
    x = jax.random.normal(jax.random.key(0), (3, 64)) * 9
    y = rms_norm(x, jnp.ones(64))
    np.testing.assert_allclose(jnp.mean(y * y, axis=-1), 1.0, rtol=1e-4)


def test_a_rotation_keeps_lengths_and_scores_depend_on_distance_only():
    q, k = jax.random.normal(jax.random.key(0), (2, 1, 1, 1, 8))
    table = rotary_table(16, 8)
    turned_q, turned_k = (
        rotate(jnp.tile(x, (1, 16, 1, 1)), table)[0, :, 0] for x in (q, k)
    )
    np.testing.assert_allclose(
        jnp.linalg.norm(turned_q, axis=-1), jnp.linalg.norm(q), rtol=1e-5
    )
    assert turned_q[5] @ turned_k[2] == pytest.approx(
        float(turned_q[12] @ turned_k[9]), rel=1e-3, abs=1e-4
    )


def test_the_first_position_attends_to_itself():
    q, k, v = jax.random.normal(jax.random.key(0), (3, 1, 4, 2, 8))
    np.testing.assert_allclose(causal_attention(q, k, v)[:, 0], v[:, 0], rtol=1e-5)


def test_t32_traces_to_its_catalogue_of_matmuls():
    """Per block 6 matmuls forward (two of attention), 12 backward; 3 for the logits."""
    _, jaxpr, _ = traced_t32()
    assert sum(e.primitive.name == "dot_general" for e in jaxpr.eqns) == 32 * 18 + 3


def test_every_schedule_of_the_paper_is_offered():
    assert set(gpt.schedules) == {"dp", "fsdp"} | {
        "bp", "mp", "bp+mp", "bp+mp+z2", "bp+mp+z3", "emb", "bp+mp+z3+emb",
    }  # fmt: skip
    assert all(gpt.schedules.values())


def test_heads_that_do_not_divide_the_width_are_refused():
    with pytest.raises(ValueError, match="6 heads do not divide d_model 128"):
        replace(gpt.TINY, heads=6)


def test_a_head_whose_features_are_no_pairs_is_refused():
    with pytest.raises(ValueError, match="pairs of features; d_head 3 is odd"):
        replace(gpt.TINY, d_model=24)


def test_a_sequence_other_than_the_learned_positions_is_refused():
    _, (state, batch) = gpt3.tiny()
    longer = {name: np.tile(tokens, (1, 2)) for name, tokens in batch.items()}
    with pytest.raises(
        ValueError, match="a sequence of 128 does not fit the 64 learned"
    ):
        gpt3.loss(state.params, longer)


def test_the_tiny_gpt3_learns_the_text():
    losses = [step["loss"] for step in gpt3.train(seed=0, steps=60)]
    assert losses[0] > 5.0
    assert losses[-1] < 3.4
