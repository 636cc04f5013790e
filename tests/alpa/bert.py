"""BERT's layers and GShard's mixture of experts, in flax linen.

Devlin et al., "BERT", NAACL 2019; Lepikhin et al., "GShard", ICLR 2021. Shapes: B
examples, S tokens, H hidden; a mixture has G groups of S tokens and E experts, each of
capacity C.
"""

from __future__ import annotations

from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

DROPOUT = 0.1


class Widths(NamedTuple):
    """Of the hidden states, and in how many heads they attend."""

    hidden: int
    heads: int


class Mixture(NamedTuple):
    """Tokens are sent to their experts group by group."""

    widths: Widths
    group: int
    experts: int


class Attention(nn.Module):
    """Self-attention with one kernel [H, 3H] for query, value and key; then a norm."""

    widths: Widths
    is_random: bool = True

    @nn.compact
    def __call__(self, x, mask):
        hidden, heads = self.widths
        fused = nn.Dense(3 * hidden, name="qvk")(x).reshape(*x.shape[:2], hidden, 3)
        query, value, key = (
            part.reshape(*x.shape[:2], heads, hidden // heads)
            for part in jnp.split(fused, 3, axis=3)
        )
        weights = nn.dot_product_attention_weights(
            query,
            key,
            bias=jnp.where(mask[:, None, None] > 0, 0.0, -1e10),
            dropout_rng=self.make_rng("dropout") if self.is_random else None,
            dropout_rate=DROPOUT,
            broadcast_dropout=False,
            deterministic=not self.is_random,
        )
        mixed = jnp.einsum("bhqk,bkhd->bqhd", weights, value).reshape(x.shape)
        out = nn.Dense(hidden, name="out")(mixed)
        out = nn.Dropout(DROPOUT, deterministic=not self.is_random)(out)
        return nn.LayerNorm()(out + x)


class BertLayer(nn.Module):
    """Attention, then two matmuls with gelu between; norms after the additions."""

    widths: Widths
    is_random: bool = True

    @nn.compact
    def __call__(self, x, mask):
        x = Attention(self.widths, self.is_random, name="attention")(x, mask)
        hidden = self.widths.hidden
        y = nn.gelu(nn.Dense(4 * hidden, name="up")(x), approximate=False)
        y = nn.Dense(hidden, name="down")(y)
        y = nn.Dropout(DROPOUT, deterministic=not self.is_random)(y)
        return nn.LayerNorm()(y + x)


class BertLayers(nn.Module):
    """Some layers on hidden states."""

    widths: Widths
    layers: int
    is_remat: bool = False

    @nn.compact
    def __call__(self, x, mask):
        layer = nn.remat(BertLayer) if self.is_remat else BertLayer
        for i in range(self.layers):
            x = layer(self.widths, name=f"layer_{i}")(x, mask)
        return x


class Embeddings(nn.Module):
    """Of words, positions and (if there are types) types, summed and normed."""

    vocab: int
    sequence: int
    hidden: int
    types: int
    is_random: bool = True

    def setup(self):
        self.words = nn.Embed(self.vocab, self.hidden)
        self.positions = nn.Embed(self.sequence, self.hidden)
        if self.types:
            self.token_types = nn.Embed(self.types, self.hidden)
        self.norm = nn.LayerNorm()
        self.dropout = nn.Dropout(DROPOUT, deterministic=not self.is_random)

    def __call__(self, words, types, positions):
        x = self.words(words) + self.positions(positions)
        if self.types:
            x = x + self.token_types(types)
        return self.dropout(self.norm(x))

    def table(self):
        """The words' embeddings [V, H], for the output."""
        return self.words.embedding


class BertMLM(nn.Module):
    """Embeddings, layers, a transform, and logits by the words' own table."""

    widths: Widths
    layers: int
    vocab: int
    sequence: int

    @nn.compact
    def __call__(self, words, mask, types, positions):
        hidden = self.widths.hidden
        embed = Embeddings(self.vocab, self.sequence, hidden, 2, name="embeddings")
        x = embed(words, types, positions)
        x = BertLayers(self.widths, self.layers, name="encoder")(x, mask)
        x = nn.gelu(nn.Dense(hidden, name="transform")(x), approximate=False)
        bias = self.param("bias", nn.initializers.zeros, (self.vocab,))
        return nn.LayerNorm()(x) @ embed.table().T + bias


class Experts(nn.Module):
    """Two experts of each token: dispatch, two matmuls per expert, combination."""

    group: int
    experts: int

    @nn.compact
    def __call__(self, inputs):
        hidden = inputs.shape[-1]
        init = nn.initializers.lecun_normal()
        gate = self.param("gate", init, (hidden, self.experts))
        up = self.param("up", init, (self.experts, hidden, 4 * hidden))
        down = self.param("down", init, (self.experts, 4 * hidden, hidden))
        x = inputs.reshape(-1, self.group, hidden)
        gates = jax.nn.softmax(jnp.einsum("GSM,ME->GSE", x, gate))
        combine, dispatch = top2(gates)
        tokens = jnp.einsum("GSEC,GSM->EGCM", dispatch, x)
        h = nn.relu(jnp.einsum("EGCM,EMH->EGCH", tokens, up))
        out = jnp.einsum("EGCH,EHM->GECM", h, down)
        return jnp.einsum("GSEC,GECM->GSM", combine, out).reshape(inputs.shape)


def top2(gates):
    """(weights, mask) [G, S, E, C] of each token's place with its two best experts.

    gates: [G, S, E]. Tokens beyond an expert's capacity C = 2 S / E are dropped.
    """
    _, tokens, experts = gates.shape
    capacity = 2 * tokens // experts
    first = _one_hot(gates)
    second = _one_hot(gates * (1 - first))
    places = [jnp.cumsum(first, axis=-2) - first]
    before = jnp.sum(first * (places[0] < capacity), axis=-2, keepdims=True)
    places.append(jnp.cumsum(second, axis=-2) - second + before)
    masks = [m * (p < capacity) for m, p in zip((first, second), places, strict=True)]
    scores = [jnp.einsum("GSE,GSE->GS", gates, mask) for mask in masks]
    total = scores[0] + scores[1]
    total = jnp.where(total > 0, total, 1.0)
    combine = sum(
        jnp.einsum(
            "GSE,GSC->GSEC",
            (score / total)[..., None] * mask,
            jax.nn.one_hot(jnp.einsum("GSE,GSE->GS", place, mask), capacity),
        )
        for score, mask, place in zip(scores, masks, places, strict=True)
    )
    return combine, (combine > 0).astype(gates.dtype)


def _one_hot(gates):
    return jax.nn.one_hot(jnp.argmax(gates, axis=-1), gates.shape[-1], dtype=jnp.int32)


class Moe(nn.Module):
    """Attention and a mixture, without dropout; a norm after the addition."""

    mixture: Mixture

    @nn.compact
    def __call__(self, x, mask):
        widths, group, experts = self.mixture
        x = Attention(widths, is_random=False, name="attention")(x, mask)
        y = Experts(group, experts, name="moe")(x)
        return nn.LayerNorm()(y + x)


class MoeLM(nn.Module):
    """A mixture layer, then a dense one, between tied embeddings; no dropout."""

    mixture: Mixture
    vocab: int
    sequence: int

    @nn.compact
    def __call__(self, words, mask, types, positions):
        widths = self.mixture.widths
        embed = Embeddings(
            self.vocab,
            self.sequence,
            widths.hidden,
            0,
            is_random=False,
            name="embeddings",
        )
        x = embed(words, types, positions)
        x = Moe(self.mixture, name="sparse")(x, mask)
        x = BertLayer(widths, is_random=False, name="dense")(x, mask)
        bias = self.param("bias", nn.initializers.zeros, (self.vocab,))
        return x @ embed.table().T + bias
