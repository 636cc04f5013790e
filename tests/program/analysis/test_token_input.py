"""The input that holds the tokens of a step."""

import jax
import jax.numpy as jnp
import pytest

from meshwright.program.analysis.token_input import find_token_input
from meshwright.program.capture import capture


def shape(*dims, dtype=jnp.int32):
    return jax.ShapeDtypeStruct(dims, dtype)


TABLE = shape(100, 8, dtype=jnp.float32)


def rows(table, batch):
    return table[batch["tokens"]].sum()


def accumulated(table, batch):
    """Microbatches of tokens, with the length of each sequence."""

    def add(total, part):
        kept = jnp.arange(part["tokens"].shape[-1]) < part["lengths"][:, None]
        return total + (table[part["tokens"]].sum(-1) * kept).sum(), None

    return jax.lax.scan(add, 0.0, batch)[0]


def images(table, batch):
    return (table[:8, :8] @ batch["pixels"].astype(jnp.float32)).sum()


LENGTHS = {"lengths": shape(4, 16), "tokens": shape(4, 16, 128)}


@pytest.mark.parametrize(
    ("fn", "batch", "found"),
    [
        (rows, {"tokens": shape(16, 128)}, "batch.tokens"),
        (rows, {"a_mask": shape(16, 128), "tokens": shape(16, 128)}, "batch.tokens"),
        (accumulated, LENGTHS, "batch.tokens"),
        (images, {"pixels": shape(32, 8, 8, 8, dtype=jnp.uint8)}, None),
        (images, {"pixels": shape(8, 8)}, "batch.pixels"),
    ],
)
def test_tokens_are_what_indexes_a_table(fn, batch, found):
    captured = capture(fn, (TABLE, batch))
    position = find_token_input(captured.program, ())
    assert (None if position is None else captured.paths[position]) == found


def test_state_is_no_token():
    captured = capture(rows, (TABLE, {"tokens": shape(16, 128)}))
    assert find_token_input(captured.program, {0, 1}) is None


def test_quantized_weights_are_no_tokens():
    def decode(table, weights, token):
        return table[token] @ weights.astype(jnp.float32)

    args = TABLE, shape(8, 8, dtype=jnp.int8), shape(16)
    assert find_token_input(capture(decode, args).program, set()) is None
