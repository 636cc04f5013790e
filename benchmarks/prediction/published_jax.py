"""Train steps of JAX programs that others measured on GPUs.

NVIDIA's JAX-Toolbox: the READMEs of its projects maxtext, pax, t5x and vit. A100 with
80 GB or H100, eight a node. Models are those of the zoo where it has them, in bfloat16. T5
and ViT are trained by AdamW on gradients clipped by their global norm, as in their
configurations.

T5X, Paxml's GPT and ViT write their layers out (the loops over layers in
t5x/contrib/gpu/t5/network.py and rosetta/projects/vit/layers.py; `USE_REPEATED_LAYER` in
paxml/contrib/gpu/scripts_gpu/configs.py). `jax_cases` has both forms.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax

import meshwright as mw
from benchmarks.prediction.published_gpt import Model, arguments, train_step
from benchmarks.prediction.published_steps import DATA, Built, Case
from zoo import classifier, t5, vit
from zoo.training import LossFn, new_state, train_step_of


def in_bfloat16(loss: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """A loss with parameters and data rounded to bfloat16."""

    def cast(tree: Any) -> Any:
        return jax.tree.map(
            lambda x: x.astype("bfloat16") if x.dtype == jnp.float32 else x, tree
        )

    return lambda params, batch: loss(cast(params), cast(batch))


def gpt(devices: int, batch: int, rate: float, scan: bool) -> Case:
    """Paxml's GPT of 126 million parameters."""
    model = Model(12, 768, 12, 50_304, 2048, per_stage=0 if scan else 12)
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


def clipped_adamw(loss: LossFn, params: Any, data: Any) -> Built:
    """A train step by AdamW on gradients clipped by their global norm, as both have it."""
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-4))
    state = jax.eval_shape(partial(new_state, optimizer=optimizer), params)
    return train_step_of(loss, optimizer), (state, data)


def t5_case(
    name: str, config: t5.Config, devices: int, batch: int, rate: float
) -> Case:
    """A row of T5X: 512 tokens in, 114 out."""
    sized = replace(config, batch=batch, inputs=512, targets=114)

    def build() -> Built:
        _, (state, data) = t5.train_target(sized)
        loss = in_bfloat16(partial(t5.loss, sized))
        return clipped_adamw(loss, state.params, data)

    return Case(f"jax/{name}", build, {DATA: devices}, batch, rate)


def vit_case(
    name: str, config: vit.Config, devices: int, batch: int, rate: float
) -> Case:
    """A row of ViT, images of 224 x 224."""
    task = vit.classifier(replace(config, batch=batch))

    def build() -> Built:
        _, (state, data) = classifier.shape_target(task)
        loss = in_bfloat16(partial(classifier.loss, task))
        return clipped_adamw(loss, state.params, data)

    return Case(f"jax/{name}", build, {DATA: devices}, batch, rate)


V1_1_SMALL = t5.Config(8, 512, 6, 64, 1024, gated=True, tied=False)
VIT_G_14 = vit.Config(48, 1664, 16, 8192, patch=14)


def jax_cases(scan: bool) -> tuple[Case, ...]:
    """The rows of JAX-Toolbox whose layers are written out in the measured program.

    scan: simulate them with a loop over layers instead.
    """
    small, xl = (replace(c, scan=scan) for c in (V1_1_SMALL, t5.SIZES["v1_1_xl"]))
    b_16, g_14 = (replace(c, scan=scan) for c in (vit.SIZES["b_16"], VIT_G_14))
    return (
        gpt(64, 256, 2098, scan),
        t5_case("t5_v1_1_small", small, 8, 2048, 5712),
        t5_case("t5_v1_1_xl", xl, 144, 1152, 3021),
        vit_case("vit_b_16", b_16, 8, 4096, 7200),
        vit_case("vit_g_14", g_14, 8, 128, 8 * 34.6),
    )
