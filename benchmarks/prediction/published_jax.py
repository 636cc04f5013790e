"""Train steps of JAX programs that others measured on GPUs.

NVIDIA's JAX-Toolbox: the READMEs of its projects maxtext, pax, t5x and vit. A100 with
80 GB or H100, eight a node. Models are those of the zoo where it has them, in bfloat16.

As in their sources, layers are written out (t5x/contrib/gpu/t5/network.py,
rosetta/projects/vit/layers.py, `USE_REPEATED_LAYER` in
paxml/contrib/gpu/scripts_gpu/configs.py). T5 and ViT are trained by AdamW on gradients
clipped by their global norm. T5-small and ViT drop a tenth of the activations
(small_pile_pretrain.gin, rosetta/projects/vit/configs/pretrain.gin), by random numbers of
the compiler's generator (`random_seed` is None in t5x/train.py), which XLA does not divide
among devices.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jax import Array

import meshwright as mw
from benchmarks.prediction.published_gpt import Model, arguments, train_step
from benchmarks.prediction.published_steps import DATA, Built, Case
from zoo import t5, vit
from zoo.classifier import batch_shapes
from zoo.layers import cross_entropy
from zoo.training import LossFn, State, new_state, train_step_of


def in_bfloat16(loss: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """A loss with parameters and data rounded to bfloat16."""

    def cast(tree: Any) -> Any:
        return jax.tree.map(
            lambda x: x.astype("bfloat16") if x.dtype == jnp.float32 else x, tree
        )

    return lambda params, batch: loss(cast(params), cast(batch))


def gpt(devices: int, batch: int, rate: float) -> Case:
    """Paxml's GPT of 126 million parameters."""
    model = Model(12, 768, 12, 50_304, 2048, per_stage=12)
    return Case(
        "jax/gpt_126m",
        lambda: (partial(train_step, model, 1), arguments(model, batch)),
        {DATA: devices}, batch, rate,
    )  # fmt: skip


def llama2_7b() -> Case:
    """MaxText's Llama 2 on one node of H100, without recomputation of products."""
    model = Model(
        32,
        4096,
        32,
        32_000,
        4096,
        d_ff=11_008,
        is_llama=True,
        is_fused=True,
        per_stage=32,
    )
    return Case(
        "jax/llama2_7b",
        lambda: (partial(train_step, model, 1), arguments(model, 16)),
        {DATA: 8}, 16, 22.19, machine="h100",
        tactics=(mw.data_parallel(DATA), mw.fsdp(DATA)),
    )  # fmt: skip


def trained(loss: LossFn, net: nn.Module, *inputs: Any, **data: Any) -> Built:
    """A train step by AdamW on clipped gradients, and its arguments as shapes.

    inputs: shapes of what the net reads. data: shapes of a batch.
    """
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-4))

    def start(key: Array) -> State:
        numbers = {"params": key, "dropout": key}
        examples = (jnp.zeros(x.shape, x.dtype) for x in inputs)
        return new_state(net.init(numbers, *examples)["params"], optimizer)

    state = jax.eval_shape(start, jax.random.key(0))
    key = jax.eval_shape(lambda: jax.random.key(0, impl="unsafe_rbg"))
    step = train_step_of(in_bfloat16(loss), optimizer)
    return step, (state, {**data, "key": key})


def t5_case(
    name: str, config: t5.Config, devices: int, batch: int, rate: float
) -> Case:
    """A row of T5X: 512 tokens in, 114 out."""
    net = t5.T5(replace(config, scan=False))

    def loss(params: Any, batch: Any) -> Array:
        tokens, numbers = (batch["inputs"], batch["before"]), {"dropout": batch["key"]}
        scores = net.apply({"params": params}, *tokens, rngs=numbers)
        return cross_entropy(scores, batch["targets"])

    def build() -> Built:
        read, written = (
            jax.ShapeDtypeStruct((batch, n), jnp.int32) for n in (512, 114)
        )
        one = jax.ShapeDtypeStruct((1, 1), jnp.int32)
        return trained(
            loss, net, one, one, inputs=read, before=written, targets=written
        )

    return Case(f"jax/{name}", build, {DATA: devices}, batch, rate)


def vit_case(
    name: str, config: vit.Config, devices: int, batch: int, rate: float
) -> Case:
    """A row of ViT, images of 224 x 224."""
    net = vit.ViT(replace(config, scan=False, dropout=0.1))

    def loss(params: Any, batch: Any) -> Array:
        numbers = {"dropout": batch["key"]}
        scores = net.apply({"params": params}, batch["image"], rngs=numbers)
        return cross_entropy(scores, batch["label"])

    def build() -> Built:
        shapes = batch_shapes(batch, config.size)
        one = batch_shapes(1, config.size)["image"]
        return trained(loss, net, one, **shapes)

    return Case(f"jax/{name}", build, {DATA: devices}, batch, rate)


V1_1_SMALL = t5.Config(8, 512, 6, 64, 1024, gated=True, tied=False, dropout=0.1)
VIT_G_14 = vit.Config(48, 1664, 16, 8192, patch=14)


def jax_cases() -> tuple[Case, ...]:
    """The rows of JAX-Toolbox on A100."""
    return (
        gpt(64, 256, 2098),
        t5_case("t5_v1_1_small", V1_1_SMALL, 8, 2048, 5712),
        t5_case("t5_v1_1_xl", t5.SIZES["v1_1_xl"], 144, 1152, 3021),
        vit_case("vit_b_16", vit.SIZES["b_16"], 8, 4096, 7200),
        vit_case("vit_g_14", VIT_G_14, 8, 128, 8 * 34.6),
    )
