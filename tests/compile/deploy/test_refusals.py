"""What a target cannot express is named with its line, and nothing is written."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import meshwright as mw
from meshwright.errors import DeployError

pytestmark = pytest.mark.deploy


def noisy(key, x):
    return x + jax.random.normal(key, x.shape)


def complicated(x):
    return jnp.abs(jnp.fft.fft(x))


def two_keys(x, y):
    return jax.lax.sort((x, y), num_keys=2)


def dilated(x):
    return jax.lax.cummax(x)


X = np.linspace(0, 1, 8, dtype=np.float32)


@pytest.mark.parametrize(
    ("fn", "args", "target", "kind"),
    [
        (noisy, (jax.random.key(0), X), "onnx", "random"),
        (complicated, (X,), "onnx", "fft"),
        (two_keys, (X, X), "onnx", "sort"),
        (dilated, (X,), "onnx", "cummax"),
        (two_keys, (X, X), "litert", "sort"),
    ],
)
def test_an_op_without_a_form_is_named_with_its_line(fn, args, target, kind, tmp_path):
    with pytest.raises(DeployError, match=rf"`{kind}\w*` of .*test_refusals\.py:\d+"):
        mw.deploy(fn, args, to=target, out=tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_a_dtype_without_a_form_is_named(tmp_path):
    def turn(x):
        return jnp.abs(x * 1j)

    with pytest.raises(
        DeployError, match=r"test_refusals\.py:\d+: there is no type complex64"
    ):
        mw.deploy(turn, (X,), to="onnx", out=tmp_path / "out")


def test_an_input_of_a_dtype_without_a_form_is_named(tmp_path):
    with pytest.raises(DeployError, match=r"no complex64, as in z: complex64\[8\]"):
        mw.deploy(lambda z: z + z, (X * 1j,), to="onnx", out=tmp_path / "out")


def test_an_op_that_the_runtime_has_no_kernel_for_is_named(tmp_path):
    def larger(x, y):
        return jnp.maximum(x, y)

    small = np.arange(4, dtype=np.int16)
    with pytest.raises(DeployError, match=r"`max` of i16\[4\].*test_refusals\.py:\d+"):
        mw.deploy(larger, (small, small), to="onnx", out=tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_a_page_is_refused_for_a_model_that_has_no_panel(tmp_path):
    with pytest.raises(DeployError, match=r"this model takes x: float32\[8\]"):
        mw.deploy(jnp.sin, (X,), to="web", out=tmp_path / "out")
    assert not list(tmp_path.iterdir())
