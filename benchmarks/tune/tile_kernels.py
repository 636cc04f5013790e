"""Kernels whose tiles are measured, with the shapes of real models.

`TRAINING` ones are what the shipped ranker learns from; `HELD_OUT` ones nothing does.
"""

import math

import jax
import jax.numpy as jnp

_DIMS = ("NHWC", "HWIO", "NHWC")


def matmul(m, k, n):
    return lambda x, w: x @ w, ((m, k), (k, n))


def dense(act, m, k, n):
    """A layer of a network: product, bias and activation."""
    return lambda x, w, b: act(x @ w + b), ((m, k), (k, n), (n,))


def transposed(m, k, n):
    """The gradient of a layer's weights: the first operand is read along its columns."""
    return lambda x, g: x.T @ g, ((k, m), (k, n))


def scores(b, q, k, d):
    """Scores of attention, with their scale."""
    return lambda x, y: jnp.matmul(x, y) * d**-0.5, ((b, q, d), (b, d, k))


def values(b, q, k, d):
    return lambda p, v: jnp.matmul(p, v), ((b, q, k), (b, k, d))


def vector(k, n):
    return lambda x, w: x @ w, ((1, k), (k, n))


def conv(batch, size, inputs, outputs, window, stride=1):
    """A convolution over an image that is padded already, with an activation."""
    padded = (math.ceil(size / stride) - 1) * stride + window

    def fn(x, k):
        return jax.nn.relu(
            jax.lax.conv_general_dilated(
                x, k, (stride, stride), "VALID", dimension_numbers=_DIMS
            )
        )

    image = (batch, padded, padded, inputs)
    return fn, (image, (window, window, inputs, outputs))


def depthwise(batch, size, channels, window, stride=1):
    padded = (math.ceil(size / stride) - 1) * stride + window

    def fn(x, k):
        return jax.nn.relu(
            jax.lax.conv_general_dilated(
                x,
                k,
                (stride, stride),
                "VALID",
                dimension_numbers=_DIMS,
                feature_group_count=channels,
            )
        )

    return fn, ((batch, padded, padded, channels), (window, window, 1, channels))


def conv1d(batch, length, inputs, outputs, window):
    def fn(x, k):
        return jax.lax.conv_general_dilated(
            x, k, (1,), "VALID", dimension_numbers=("NWC", "WIO", "NWC")
        )

    return fn, ((batch, length + window - 1, inputs), (window, inputs, outputs))


def channels_first(batch, size, inputs, outputs, window):
    def fn(x, k):
        return jax.lax.conv(x, k, (1, 1), "VALID")

    padded = size + window - 1
    return fn, ((batch, inputs, padded, padded), (outputs, inputs, window, window))


TRAINING = {
    "bert_base_qkv_128": matmul(128, 768, 768),
    "bert_base_ffn_in_128": dense(jax.nn.gelu, 128, 768, 3072),
    "bert_base_ffn_out_128": dense(lambda y: y, 128, 3072, 768),
    "bert_base_scores_12x128": scores(12, 128, 128, 64),
    "bert_base_values_12x128": values(12, 128, 128, 64),
    "bert_tiny_ffn": dense(jax.nn.gelu, 256, 128, 512),
    "gpt2_ffn_in_64": dense(jax.nn.gelu, 64, 768, 3072),
    "gpt2_scores_256": scores(6, 256, 256, 64),
    "gpt2_logits_16": matmul(16, 768, 8192),
    "vit_small_patches": dense(lambda y: y, 196, 768, 384),
    "vit_small_ffn_in": dense(jax.nn.gelu, 196, 384, 1536),
    "vit_small_values": values(6, 196, 196, 64),
    "mixer_tokens": dense(jax.nn.gelu, 384, 196, 256),
    "mlp_mnist_hidden": dense(jax.nn.relu, 128, 784, 512),
    "mlp_mnist_gradient": transposed(784, 128, 512),
    "lstm_gates_32": dense(jnp.tanh, 32, 512, 2048),
    "ranking_hidden_512": dense(jax.nn.relu, 512, 136, 256),
    "policy_hidden": dense(jnp.tanh, 64, 256, 256),
    "decode_vector_1024": vector(1024, 1024),
    "decode_vector_ffn": vector(768, 3072),
    "square_512": matmul(512, 512, 512),
    "odd_300x77": matmul(100, 300, 77),
    "resnet_stage1_3x3": conv(2, 56, 64, 64, 3),
    "resnet_stage2_3x3": conv(2, 28, 128, 128, 3),
    "resnet_stage2_down": conv(2, 56, 64, 128, 3, 2),
    "resnet_stage4_3x3": conv(2, 7, 256, 256, 3),
    "resnet_1x1_down": conv(2, 28, 256, 512, 1, 2),
    "cifar_stage1": conv(8, 32, 16, 16, 3),
    "cifar_stem": conv(8, 32, 3, 64, 3),
    "mobilenet_point": conv(4, 14, 192, 64, 1),
    "efficientnet_depth_3": depthwise(2, 28, 144, 3),
    "efficientnet_depth_5": depthwise(2, 14, 240, 5),
    "wavenet_layer": conv1d(4, 256, 32, 64, 3),
    "unet_mid_3x3": conv(2, 16, 128, 128, 3),
    "torch_3x3": channels_first(2, 28, 32, 64, 3),
}

HELD_OUT = {
    "gpt_medium_qkv_96": matmul(96, 1024, 1024),
    "t5_small_ffn_in_160": dense(jax.nn.relu, 160, 512, 2048),
    "t5_small_ffn_gradient": transposed(512, 160, 2048),
    "decoder_scores_8x160": scores(8, 160, 160, 64),
    "swin_values_16x49": values(16, 49, 49, 32),
    "decode_vector_2048": vector(2048, 512),
    "classifier_hidden": dense(jnp.tanh, 48, 1280, 384),
    "resnet_stage3_3x3": conv(2, 14, 192, 192, 3),
    "vgg_3x3": conv(2, 24, 96, 128, 3),
    "unet_down": conv(4, 32, 32, 64, 3, 2),
    "mobilenet_depth": depthwise(2, 56, 96, 3),
    "audio_layer": conv1d(4, 200, 48, 96, 5),
}


def arguments(shapes, seed):
    """Normal random arrays of these shapes."""
    keys = jax.random.split(jax.random.key(seed), len(shapes))
    return [jax.random.normal(k, s) for k, s in zip(keys, shapes, strict=True)]
