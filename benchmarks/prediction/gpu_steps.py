"""Simulated rates of published train steps on GPUs, beside the rates that were measured.

    python -m benchmarks prediction gpu_steps [--only TEXT]

Megatron-LM: Narayanan et al., "Efficient Large-Scale Language Model Training on GPU
Clusters", SC 2021, configurations of examples/academic_paper_scripts/sc21, rates of the
README of 2021. JAX-Toolbox: the READMEs of pax, t5x and
vit in NVIDIA's repository of that name. All ran on A100 with 80 GB, eight a node.
Models are those of the zoo where it has them, in bfloat16.
"""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from benchmarks.harness import ONLY, STORED, Options, benchmark

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp

import meshwright as mw
from benchmarks.prediction.published_gpt import Model, arguments, train_step
from meshwright.features.pipeline.schedules.generators import interleaved
from meshwright.features.pipeline.schedules.schedule import Schedule
from meshwright.partitioner.tactics import Tactic
from zoo import classifier, t5, vit
from zoo.training import train_step_of

STAGE, DATA, MODEL = "stage", "data", "model"
SHARED = "shared"
VOCABULARY = {"**.head": 1, "**.embedding": 0}
"""The weights whose vocabulary Megatron-LM shards too, with its dim."""

Built = tuple[Callable[..., Any], Sequence[Any]]


@dataclass(frozen=True, slots=True)
class Case:
    """A published step: how it is built, where it ran, and its measured rate.

    units: what one step does, in the unit of the measured rate: sequences, images, or
        10^12 FLOPs of one device.
    stages: of a pipeline: microbatches of a replica, and stages on each submesh.
    """

    name: str
    build: Callable[[], Built]
    mesh: Mapping[str, int]
    units: float
    measured: float
    stages: tuple[int, int] = (1, 1)
    machine: str = "a100-80g"
    tactics: Sequence[Tactic] = (mw.data_parallel(DATA),)

    def simulated_rate(self) -> float:
        """The simulated rate, in the unit of the measured one."""
        fn, args = self.build()
        tactics = list(self.tactics)
        if STAGE in self.mesh:
            step = mw.pipeline(
                fn,
                self.mesh,
                tactics,
                microbatches=self.stages[0],
                schedule=self._schedule,
            )
        else:
            step = mw.partition(fn, self.mesh, tactics, donate_argnums=0)
        return self.units / step.plan(*args).on(self.machine).step_time_s

    def _schedule(self, num_stages: int, num_microbatches: int) -> Schedule:
        chunks = self.stages[1]
        return interleaved(num_stages // chunks, chunks, num_microbatches)


def in_bfloat16(loss: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """A loss with parameters and data rounded to bfloat16."""

    def cast(tree: Any) -> Any:
        return jax.tree.map(
            lambda x: x.astype("bfloat16") if x.dtype == jnp.float32 else x, tree
        )

    return lambda params, batch: loss(cast(params), cast(batch))


def megatron(
    name: str,
    sizes: tuple[int, int, int],
    mesh: Mapping[str, int],
    batch: int,
    rate: float,
    stages: tuple[int, int] = (0, 0),
) -> Case:
    """A row of SC 2021: layers, hidden size and heads; rate in TFLOP/s of a GPU.

    stages: sequences of a microbatch on one GPU, and layers of a pipeline stage.
    """
    layers, hidden, heads = sizes
    micro, per_stage = stages
    model = Model(
        layers,
        hidden,
        heads,
        51_200,
        2048,
        dtype="float16",
        recompute=True,
        dropout=0.1,
        per_stage=per_stage,
    )
    flops = model.model_flops * 4 / 3 * batch * model.sequence
    tactics = [mw.data_parallel(DATA)]
    if MODEL in mesh:
        tactics += [mw.megatron(MODEL), mw.shard(VOCABULARY, MODEL)]
    counts = (1, 1)
    if micro:
        counts = batch // mesh[DATA] // micro, layers // mesh[STAGE] // per_stage
    return Case(
        f"megatron/{name}",
        lambda: (partial(train_step, model, 1), arguments(model, batch)),
        mesh, flops / math.prod(mesh.values()) / 1e12, rate, counts,
        tactics=tactics,
    )  # fmt: skip


def core(
    name: str,
    sizes: tuple[int, int, int],
    mesh: Mapping[str, int],
    batch: int,
    rate: float,
) -> Case:
    """A row of Megatron-Core 0.8 on H100; in a pipeline a microbatch is one sequence.

    Its 48 replicas share the optimizer's state, here 16 of them: no dim has 48 parts.
    """
    per_stage = sizes[0] // mesh[STAGE] if STAGE in mesh else 0
    model = Model(*sizes, 131_072, 4096, is_fused=True, per_stage=per_stage)
    flops = model.model_flops * batch * model.sequence
    whole = {**mesh, DATA: 3, SHARED: 16}
    tactics = [mw.data_parallel(DATA), mw.data_parallel(SHARED)]
    if MODEL in mesh:
        tactics += [
            mw.megatron(MODEL),
            mw.shard(VOCABULARY, MODEL),
            mw.sequence_parallel(MODEL),
        ]
    if STAGE not in mesh:
        tactics.append(mw.zero(3, SHARED))
    return Case(
        f"core/{name}",
        lambda: (partial(train_step, model, 1), arguments(model, batch)),
        whole, flops / math.prod(whole.values()) / 1e12, rate,
        (batch // 48, 1), "h100", tuple(tactics),
    )  # fmt: skip


def llama3_405b() -> Case:
    """Llama 3 on 8,192 H100, four stages on each submesh; their number is not published."""
    model = Model(
        126, 16_384, 128, 128_256, 8192, key_heads=8, d_ff=53_248, is_llama=True,
        is_fused=True, per_stage=2, fewer=1,
    )  # fmt: skip
    mesh = {STAGE: 16, DATA: 64, MODEL: 8}
    return Case(
        "llama3/405b",
        lambda: (partial(train_step, model, 1), arguments(model, 2048)),
        mesh, model.model_flops * 2048 * 8192 / 8192 / 1e12, 430, (32, 4), "h100",
        [mw.data_parallel(DATA), mw.megatron(MODEL), mw.shard(VOCABULARY, MODEL),
         mw.sequence_parallel(MODEL)],
    )  # fmt: skip


def gpt(devices: int, batch: int, rate: float) -> Case:
    """Paxml's GPT of 126 million parameters."""
    model = Model(12, 768, 12, 50_304, 2048)
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


def t5_case(
    name: str, config: t5.Config, devices: int, batch: int, rate: float
) -> Case:
    """A row of T5X: 512 tokens in, 114 out."""
    sized = replace(config, batch=batch, inputs=512, targets=114)

    def build() -> Built:
        _, args = t5.train_target(sized)
        loss = in_bfloat16(partial(t5.loss, sized))
        return train_step_of(loss, t5.optimizer(sized)), args

    return Case(f"jax/{name}", build, {DATA: devices}, batch, rate)


def vit_case(
    name: str, config: vit.Config, devices: int, batch: int, rate: float
) -> Case:
    """A row of ViT, images of 224 x 224."""
    task = vit.classifier(replace(config, batch=batch))

    def build() -> Built:
        _, args = classifier.shape_target(task)
        loss = in_bfloat16(partial(classifier.loss, task))
        return train_step_of(loss, task.optimizer), args

    return Case(f"jax/{name}", build, {DATA: devices}, batch, rate)


V1_1_SMALL = t5.Config(8, 512, 6, 64, 1024, gated=True, tied=False)
VIT_G_14 = vit.Config(48, 1664, 16, 8192, patch=14)

CASES = (
    megatron("1.7b", (24, 2304, 24), {DATA: 32}, 512, 137),
    megatron("7.5b", (36, 4096, 32), {DATA: 32, MODEL: 4}, 512, 142),
    megatron(
        "39.1b", (48, 8192, 64), {STAGE: 2, DATA: 32, MODEL: 8}, 1536, 138, (4, 24)
    ),
    megatron(
        "145.6b", (80, 12288, 96), {STAGE: 8, DATA: 24, MODEL: 8}, 2304, 148, (2, 5)
    ),
    megatron(
        "529.6b", (105, 20480, 128), {STAGE: 35, DATA: 9, MODEL: 8}, 2520, 163, (1, 1)
    ),
    core("1.7b", (24, 2048, 16), {}, 192, 408.8),
    core("16b", (32, 6144, 48), {MODEL: 4}, 192, 489.1),
    core("70b", (84, 8192, 64), {STAGE: 2, MODEL: 8}, 384, 419.7),
    core("177b", (96, 12288, 96), {STAGE: 6, MODEL: 8}, 1152, 432.8),
    llama3_405b(),
    llama2_7b(),
    gpt(64, 256, 2098),
    t5_case("t5_v1_1_small", V1_1_SMALL, 8, 2048, 5712),
    t5_case("t5_v1_1_xl", t5.SIZES["v1_1_xl"], 144, 1152, 3021),
    vit_case("vit_b_16", vit.SIZES["b_16"], 8, 4096, 7200),
    vit_case("vit_g_14", VIT_G_14, 8, 128, 8 * 34.6),
)


@benchmark(ONLY, out=STORED)
def main(options: Options) -> None:
    """Simulate the cases, print and save their rates beside the measured ones."""
    rows: dict[str, dict[str, float]] = {}
    for case in CASES:
        if options.only not in case.name:
            continue
        rate = case.simulated_rate()
        rows[case.name] = {"simulated": rate, "measured": case.measured}
        rows[case.name]["ratio"] = rate / case.measured
        print(
            f"{case.name:20} {rate:9.4g} {case.measured:9.4g} {rate / case.measured:6.2f}"
        )
    median = statistics.median(abs(row["ratio"] - 1) for row in rows.values())
    print(f"median error {median:.1%}")
    if not options.only:
        options.save({"cases": rows, "median_error": median})


if __name__ == "__main__":
    main()
