"""Convolutions on chips of many cores: dense ones in tiles, depthwise ones on lanes."""

import jax
import jax.numpy as jnp
import pytest

from meshwright.codesign import nas
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
    eager = nas.latency(*made, "v100", eager=True)
    moved = [sum(b.memory_s for b in r.by_block) * 900e9 for r in (compiled, eager)]
    # XLA's own program (jax 0.12.0.1 for V100) moves 8.52 GB.
    assert moved[0] == pytest.approx(8.52e9, rel=0.06)
    assert moved[1] > 1.3 * moved[0]
    assert eager.seconds > 1.25 * compiled.seconds
