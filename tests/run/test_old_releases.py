"""What older releases of JAX need, beside what the newest one does."""

import jax
import jax.numpy as jnp
import pytest

from meshwright import jax_private


@pytest.mark.parametrize("is_old", [True, False])
def test_only_before_jaxlib_0_12_is_a_slice_kept_apart_from_its_readers(
    is_old, monkeypatch
):
    monkeypatch.setattr(jax_private, "_MISCOMPILES_UPDATES", is_old)
    traced = str(jax.make_jaxpr(lambda x: jax_private.settle_slice(x))(jnp.ones(4)))
    assert ("optimization_barrier" in traced) == is_old


def test_keys_pass_unchanged(monkeypatch):
    monkeypatch.setattr(jax_private, "_MISCOMPILES_UPDATES", True)
    keys = jax.random.split(jax.random.key(0), 4)
    assert jax_private.settle_slice(keys) is keys
