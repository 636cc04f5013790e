"""Small programs whose layouts are collected on a CPU: training steps of a few ms.

They are the blocks of `layout_blocks.py` in float32, and some of other sizes, so that a
model that ranks layouts of one program has seen its kind in others.
"""

from functools import partial

import jax
import jax.numpy as jnp

from benchmarks.tune import layout_blocks as blocks

PROGRAMS = {
    "attention": partial(blocks.attention, 2, 64, 128, 4),
    "attention_long": partial(blocks.attention, 1, 256, 64, 2),
    "transformer": partial(blocks.transformer, 2, 64, 128, 4, 512),
    "attention_mlp": partial(blocks.attention_mlp, 4, 32, 128, 8, 256),
    "cross_attention": partial(blocks.cross_attention, 2, 64, 96, 128, 4),
    "grouped_query": partial(blocks.grouped_query, 2, 64, 128, 8, 2),
    "window_attention": partial(blocks.window_attention, 2, 16, 8, 64, 4),
    "mlp": partial(blocks.mlp, 4, 64, 128, 512),
    "mlp_wide": partial(blocks.mlp, 1, 48, 256, 1024),
    "gated_mlp": partial(blocks.gated_mlp, 4, 64, 128, 352),
    "experts": partial(blocks.experts, 4, 32, 64, 128, 4, 12),
    "vocabulary": partial(blocks.vocabulary, 2, 64, 128, 1024),
    "bottleneck": partial(blocks.bottleneck, 4, 14, 64, 16),
    "bottleneck_wide": partial(blocks.bottleneck, 2, 7, 256, 64),
    "upsampling": partial(blocks.upsampling, 4, 8, 32, 16),
    "depthwise": partial(blocks.depthwise, 2, 14, 32),
    "stem": partial(blocks.stem, 2, 32, 16),
    "joined": partial(blocks.joined, 4, 16, 16),
    "lstm": partial(blocks.lstm, 16, 8, 64),
    "gru": partial(blocks.gru, 16, 8, 64),
}


def step(name):
    """The loss and its gradients in float32, as a function and its arguments' shapes."""
    fn, args = PROGRAMS[name]().step()
    return fn, jax.tree.map(_in_float32, args)


def _in_float32(shaped):
    is_float = jnp.issubdtype(shaped.dtype, jnp.floating)
    return jax.ShapeDtypeStruct(shaped.shape, jnp.float32 if is_float else shaped.dtype)
