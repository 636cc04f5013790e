"""Attention of cuDNN, which on a CPU has the plain form: forward and backward."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from meshwright.jax_private import gpu_for_cudnn
from tests.program.ops.catalogue import Example

_RNG = np.random.default_rng(43)
_QUERY, _SEEN = (8, 16, 8, 8), (8, 16, 4, 8)


def _array(*shape):
    return jnp.asarray(_RNG.normal(size=shape), jnp.float16)


_ARRAYS = _array(*_QUERY), _array(*_SEEN), _array(*_SEEN)
_LENGTHS = np.array([16, 3, 7, 16, 9, 1, 12, 5], np.int32)


def fused(q, k, v, bias=None, lengths=None, is_causal=False):
    """Attention of grouped queries: two heads of queries see one of keys."""
    with gpu_for_cudnn():
        return jax.nn.dot_product_attention(
            q,
            k,
            v,
            bias,
            is_causal=is_causal,
            key_value_seq_lengths=lengths,
            implementation="cudnn",
        )


def gradients(q, k, v, bias, **options):
    """The gradients of attention; that of a broadcast bias is a sum over devices."""
    with gpu_for_cudnn():
        total = partial(fused, **options)
        return jax.grad(
            lambda *args: (total(*args).astype(jnp.float32) ** 2).sum(), (0, 1, 2, 3)
        )(q, k, v, bias)


EXAMPLES = [
    Example("attention", partial(fused, is_causal=True), _ARRAYS),
    Example(
        "attention lengths",
        lambda q, k, v, lengths: fused(q, k, v, lengths=lengths),
        (*_ARRAYS, _LENGTHS),
    ),
    *(
        Example(
            f"attention gradient bias {shape}",
            partial(gradients, is_causal=shape[1] == 1),
            (*_ARRAYS, _array(*shape)),
        )
        for shape in ((8, 8, 16, 16), (8, 1, 16, 16), (1, 8, 16, 16))
    ),
]
