"""Programs in plain JAX: a mixture of experts and two decode loops with a cache."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax

from tests.programs.step import BATCH, mean_cross_entropy, text, train_step_of

EXPERTS, CAPACITY, WIDTH, HIDDEN, VOCAB = 8, 32, 32, 64, 64


def _normal(*shape):
    """An array of NumPy's, normal with variance 1 / its next-to-last dim."""
    rng = np.random.default_rng(sum(shape))
    return (rng.standard_normal(shape) * shape[-2] ** -0.5).astype(np.float32)


def _dispatch(x, gate):
    """Combine weights [T, E, C] of the two best experts of each token of x [T, D].

    As GShard (Lepikhin et al., ICLR 2021): places in an expert's buffer go to tokens in
    order, first choices before second ones; who finds no place is dropped.
    """
    probabilities = jax.nn.softmax(x @ gate)
    weights, chosen = jax.lax.top_k(probabilities, 2)
    weights = weights / weights.sum(-1, keepdims=True)
    combine, used = 0.0, jnp.zeros(EXPERTS)
    for choice in range(2):
        expert = jax.nn.one_hot(chosen[:, choice], EXPERTS)
        place = jnp.cumsum(expert, axis=0) - expert + used
        used = used + expert.sum(0)
        kept = expert * (place < CAPACITY)
        slot = jax.nn.one_hot(place.astype(jnp.int32), CAPACITY)
        combine += weights[:, choice, None, None] * kept[..., None] * slot
    share = jax.nn.one_hot(chosen[:, 0], EXPERTS).mean(0)
    return combine, EXPERTS * jnp.sum(share * probabilities.mean(0))


def _moe_loss(params, stats, batch, key):
    x = params["embedding"][batch["inputs"]].reshape(-1, WIDTH)
    jitter = jax.random.uniform(key, x.shape, minval=0.99, maxval=1.01)
    combine, balance = _dispatch(x * jitter, params["gate"])
    sent = jnp.einsum("tec,td->ecd", (combine > 0).astype(x.dtype), x)
    hidden = jax.nn.relu(jnp.einsum("ecd,edf->ecf", sent, params["up"]))
    back = jnp.einsum("ecf,efd->ecd", hidden, params["down"])
    x = x + jnp.einsum("tec,ecd->td", combine, back)
    logits = (x @ params["embedding"].T).reshape(*batch["inputs"].shape, VOCAB)
    return mean_cross_entropy(logits, batch["targets"]) + 0.01 * balance, stats


def moe():
    """Top-2 routing over eight experts with capacity, Adam."""
    params = {
        "embedding": _normal(VOCAB, WIDTH),
        "gate": _normal(WIDTH, EXPERTS),
        "up": _normal(EXPERTS, WIDTH, HIDDEN),
        "down": _normal(EXPERTS, HIDDEN, WIDTH),
    }
    optimizer = optax.adam(1e-3)
    args = (params, {}, optimizer.init(params), text(16, VOCAB), jax.random.key(0))
    return train_step_of(_moe_loss, optimizer), args


HEADS, LAYERS, LENGTH, PROMPT = 4, 2, 16, 4


def _decoder_params():
    size = WIDTH // HEADS
    block = {
        "qkv": _normal(3, WIDTH, HEADS, size),
        "out": _normal(HEADS, size, WIDTH),
        "up": _normal(WIDTH, HIDDEN),
        "down": _normal(HIDDEN, WIDTH),
    }
    return {
        "embedding": _normal(VOCAB, WIDTH),
        "blocks": jax.tree.map(lambda w: np.stack([w] * LAYERS), block),
    }


def _next_token(params, cache, tokens, position):
    """One step for tokens [B]: (cache, tokens [B] that are likeliest next)."""

    def layer(x, scanned):
        weights, keys, values = scanned
        q, k, v = jnp.einsum("bd,cdnh->cbnh", x, weights["qkv"])
        keys = jax.lax.dynamic_update_slice(keys, k[:, None], (0, position, 0, 0))
        values = jax.lax.dynamic_update_slice(values, v[:, None], (0, position, 0, 0))
        scores = jnp.einsum("bnh,bsnh->bns", q, keys) * q.shape[-1] ** -0.5
        scores = jnp.where(jnp.arange(LENGTH) <= position, scores, -1e30)
        heard = jnp.einsum("bns,bsnh->bnh", jax.nn.softmax(scores), values)
        x = x + jnp.einsum("bnh,nhd->bd", heard, weights["out"])
        return x + jax.nn.gelu(x @ weights["up"]) @ weights["down"], (keys, values)

    x = params["embedding"][tokens]
    x, cache = jax.lax.scan(layer, x, (params["blocks"], *cache))
    return cache, jnp.argmax(x @ params["embedding"].T, axis=-1).astype(jnp.int32)


def _empty_cache(batch):
    shape = (LAYERS, batch, LENGTH, HEADS, WIDTH // HEADS)
    return jnp.zeros(shape), jnp.zeros(shape)


def decode():
    """Greedy decoding by `lax.scan`: the prompt first, then what the model says."""

    def generate(params, prompt):
        def step(carry, position):
            cache, tokens = carry
            given = prompt[:, jnp.minimum(position, PROMPT - 1)]
            tokens = jnp.where(position < PROMPT, given, tokens)
            cache, following = _next_token(params, cache, tokens, position)
            return (cache, following), tokens

        start = (_empty_cache(prompt.shape[0]), prompt[:, 0])
        _, said = jax.lax.scan(step, start, jnp.arange(LENGTH))
        return said.T

    return generate, (_decoder_params(), text(PROMPT, VOCAB)["inputs"])


def decode_until_end():
    """Greedy decoding by `lax.while_loop` until every sequence has said token 0."""

    def generate(params, prompt):
        def running(carry):
            _, said, position = carry
            return (position < LENGTH - 1) & ~jnp.all(jnp.any(said == 0, axis=1))

        def step(carry):
            cache, said, position = carry
            tokens = jax.lax.dynamic_index_in_dim(said, position, 1, keepdims=False)
            cache, following = _next_token(params, cache, tokens, position)
            said = said.at[:, position + 1].set(following)
            return cache, said, position + 1

        said = jnp.full((BATCH, LENGTH), -1, jnp.int32).at[:, 0].set(prompt[:, 0])
        _, said, position = jax.lax.while_loop(
            running, step, (_empty_cache(BATCH), said, jnp.int32(0))
        )
        return said, position

    return generate, (_decoder_params(), text(PROMPT, VOCAB)["inputs"])
