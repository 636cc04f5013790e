"""Convolutions on chips of many cores: dense ones in tiles, depthwise ones on lanes."""

import jax
import jax.numpy as jnp
import pytest

from meshwright.codesign import nas
from meshwright.errors import NasError
from zoo.efficientnet import inference


def convolution(channels, groups, batch=32, side=56, dtype=jnp.float16):
    def fn(kernel, images):
        return jax.lax.conv_general_dilated(
            images, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"),
            feature_group_count=groups,
        )  # fmt: skip

    kernel = jax.ShapeDtypeStruct((3, 3, channels // groups, channels), dtype)
    images = jax.ShapeDtypeStruct((batch, side, side, channels), dtype)
    return fn, (kernel, images)


def test_a_depthwise_convolution_moves_bytes_at_half_the_rate_of_elementwise_ops():
    images = jax.ShapeDtypeStruct((32, 56, 56, 144), jnp.float16)
    plain = nas.latency(jnp.negative, (images,), "a100-40g")
    depthwise = nas.latency(*convolution(144, 144), "a100-40g")
    assert depthwise.bound == "memory"
    assert depthwise.seconds == pytest.approx(2 * plain.seconds, rel=0.02)


def test_a_dense_convolution_runs_in_the_matrix_unit():
    found = nas.latency(*convolution(512, 1), "a100-40g")
    assert found.bound == "matrix"
    assert 0.55 < found.roofline_share < 0.75  # 0.70 of the peak, in whole waves


def test_frameworks_that_run_modules_one_by_one_move_more_bytes():
    made = inference["b0"](batch=128, dtype="float16")
    compiled = nas.latency(*made, "v100")
    found = nas.latency(*made, "v100", framework="pytorch")
    moved = [sum(b.memory_s for b in r.by_block) * 900e9 for r in (compiled, found)]
    # XLA's own program (jax 0.12.0.1 for V100) moves 8.52 GB.
    assert moved[0] == pytest.approx(8.52e9, rel=0.06)
    assert moved[1] > 1.3 * moved[0]
    assert found.seconds > 1.25 * compiled.seconds


def norm(x):
    size = x.shape[-1]
    mean, variance, bias = jnp.full(size, 0.5, x.dtype), jnp.ones(size), jnp.ones(size)
    return (x - mean) * jax.lax.rsqrt(variance + 1e-3).astype(x.dtype) + bias.astype(
        x.dtype
    )


def with_relu(x):
    y = norm(x)
    return jax.nn.relu(y)


def with_relu6(x):
    y = norm(x)
    return jax.nn.relu6(y)


def with_sum(x, shortcut):
    y = norm(x)
    return y + shortcut


def with_sum_and_relu(x, shortcut):
    y = norm(x)
    z = shortcut + y
    return jnp.maximum(0, z)


def sum_and_relu(x, shortcut):
    y = x + shortcut
    return jax.nn.relu(y)


def sigmoid_of_sum(x, shortcut):
    return jax.nn.sigmoid(x + shortcut)


@pytest.mark.parametrize(
    ("fn", "arrays", "pytorch", "tensorflow"),
    [
        (norm, 1, 2, 2),
        (with_relu, 1, 4, 2),
        (with_relu6, 1, 4, 4),
        (with_sum, 2, 5, 5),
        (with_sum_and_relu, 2, 7, 3),
        (sum_and_relu, 2, 5, 5),
        (sigmoid_of_sum, 2, 3, 5),  # on one line, so one module
        (jax.nn.swish, 1, 2, 5),  # a sigmoid, and a product of two arrays
    ],
)
def test_a_framework_moves_an_array_as_often_as_its_kernels_read_and_write(
    fn, arrays, pytorch, tensorflow
):
    x = jax.ShapeDtypeStruct((64, 1024, 1024), jnp.float16)
    once = nas.latency(jnp.negative, (x,), "v100").seconds / 2
    for framework, passes in (("pytorch", pytorch), ("tensorflow", tensorflow)):
        found = nas.latency(fn, (x,) * arrays, "v100", framework=framework)
        small_kernels_s = 12e-6  # of the norm's scale, for each row of channels
        assert 0 <= found.seconds - passes * once < small_kernels_s < once / 10
        assert found.machine == f"v100 ({framework})"


def test_only_known_frameworks_run_ops_and_only_on_gpus():
    x = jax.ShapeDtypeStruct((8, 8), jnp.float16)
    with pytest.raises(NasError, match=r"framework is 'pytorhc'.*pytorch"):
        nas.latency(jnp.negative, (x,), "v100", framework="pytorhc")
    with pytest.raises(NasError, match="tpu-v3 runs compiled programs only"):
        nas.latency(jnp.negative, (x,), "tpu-v3", framework="pytorch")
