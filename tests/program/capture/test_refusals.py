"""Programs that cannot be captured are refused with advice."""

import jax
import pytest

import meshwright as mw


def test_random_bits_that_depend_on_the_shape_are_refused():
    step = mw.partition(lambda key: jax.random.normal(key, (8,)), {"x": 8})
    jax.config.update("jax_threefry_partitionable", False)
    try:
        with pytest.raises(
            mw.MeshwrightError, match="jax_threefry_partitionable is off"
        ):
            step.plan(jax.random.key(0))
    finally:
        jax.config.update("jax_threefry_partitionable", True)
