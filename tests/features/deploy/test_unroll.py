import jax
import jax.numpy as jnp
import numpy as np
import pytest

from meshwright.errors import DeployError
from meshwright.features.deploy.source.model import read_model
from meshwright.features.deploy.source.unroll_loops import unroll_loops
from meshwright.run.local.execute import run_program
from tests.features.deploy import programs


@pytest.mark.parametrize("name", programs.EVERY)
def test_an_unrolled_program_computes_the_same_without_loops(name):
    fn, args = programs.EVERY[name]
    model = read_model(fn, args, None)
    unrolled = unroll_loops(model.baked(), "a format")
    assert not any(op.bodies for op in unrolled.walk())
    found = run_program(unrolled, model.samples)
    for got, wanted in zip(found, model.expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=2e-6)


def test_elements_of_stacked_weights_are_constants_not_slices():
    model = read_model(programs.mlp, programs.MLP, None)
    unrolled = unroll_loops(model.baked(), "a format")
    shapes = [value.shape for value in unrolled.constants]
    assert shapes.count((16, 16)) == 3
    assert not any(op.kind == "slice" for op in unrolled.ops)


def test_a_loop_of_unknown_length_is_named_with_its_line_and_what_to_do():
    model = read_model(programs.newton, programs.NEWTON, None)
    with pytest.raises(
        DeployError, match=r"loop `while` at .*programs\.py:\d+"
    ) as told:
        unroll_loops(model.baked(), "LiteRT")
    assert "lax.scan" in str(told.value)


def test_a_loop_that_grows_too_long_is_refused():
    def long(x):
        return jax.lax.fori_loop(0, 30_000, lambda i, y: jnp.sin(y), x)

    model = read_model(long, (np.float32(1),), None)
    with pytest.raises(DeployError, match="unrolls to more than 20000 ops"):
        unroll_loops(model.baked(), "LiteRT")
