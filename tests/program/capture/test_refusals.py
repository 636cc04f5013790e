"""Programs that cannot be captured are refused with advice."""

import jax
import jax.numpy as jnp
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


SIZES = {
    "a new array": lambda config, x: x + jnp.ones(config["n"]),
    "a reshape": lambda config, x: x.reshape(config["n"], -1),
    "a slice": lambda config, x: x[: config["n"]],
    "a range": lambda config, x: x + jnp.arange(config["n"]),
}


NAMES_SLICES = jax.__version_info__ >= (0, 12)
"""Whether JAX says in its error about a slice which argument the bounds come from."""


@pytest.mark.parametrize(
    "case", [case for case in SIZES if NAMES_SLICES or case != "a slice"]
)
def test_a_shape_that_depends_on_an_argument_names_its_path_and_the_users_code(case):
    step = mw.partition(SIZES[case], {"x": 2})
    with pytest.raises((mw.MeshwrightError, TypeError, IndexError)) as error:
        step.plan({"n": 4}, jnp.ones((4, 4)))
    assert "config.n" in str(error.value)
    assert __file__ in str(error.value)
    assert "capture.py" not in str(error.value)
