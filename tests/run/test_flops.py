"""XLA's own count of a module's operations."""

import jax
import jax.numpy as jnp

from meshwright.jax_private import hlo_flops


def compiled(fn):
    return jax.jit(fn).lower(jnp.ones((4, 8))).compile().as_text()


def test_a_product_counts_two_for_each_multiplication():
    assert hlo_flops(compiled(lambda x: x @ x.T)) == 2 * 4 * 8 * 4


def test_ops_that_only_move_data_have_no_flops():
    assert hlo_flops(compiled(lambda x: x[::-1])) == 0
