"""Train steps that others measured on GPUs: Megatron's, and Llama 3's.

SC 2021: Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters",
configurations of examples/academic_paper_scripts/sc21, rates of the README of 2021.
They ran on A100 with 80 GB, eight a node. Megatron-Core 0.8 (its README, 2024) and Llama 3
(Llama Team, 2024, table 4) ran on H100.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import meshwright as mw
from benchmarks.prediction.published_gpt import Model, arguments, train_step
from meshwright.features.pipeline.schedules.generators import interleaved
from meshwright.features.pipeline.schedules.schedule import Schedule
from meshwright.machine import Machine
from meshwright.partitioner.tactics import Tactic

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

    @property
    def table(self) -> str:
        """The published table that the row is of."""
        return self.name.split("/")[0]

    def plan(self) -> Any:
        """The plan of the published configuration."""
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
        return step.plan(*args)

    def ratio(self, plan: Any, machine: Machine | str = "") -> float:
        """The simulated rate of a plan divided by the measured one."""
        placed = plan.on(machine or self.machine)
        return self.units / placed.step_time_s / self.measured

    def _schedule(self, num_stages: int, num_microbatches: int) -> Schedule:
        chunks = self.stages[1]
        return interleaved(num_stages // chunks, chunks, num_microbatches)


def megatron(
    name: str,
    sizes: tuple[int, int, int],
    mesh: Mapping[str, int],
    batch: int,
    rate: float,
    stages: tuple[int, int] = (0, 0),
) -> Case:
    """A row of Megatron-LM with all layers recomputed; rate in TFLOP/s of a GPU.

    sizes: layers, hidden size and heads.
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
        name,
        lambda: (partial(train_step, model, 1), arguments(model, batch)),
        mesh, flops / math.prod(mesh.values()) / 1e12, rate, counts,
        tactics=tactics,
    )  # fmt: skip


def core(  # noqa: PLR0913  the columns of a published row
    name: str,
    sizes: tuple[int, int, int],
    mesh: Mapping[str, int],
    batch: int,
    rate: float,
    chunks: int = 1,
    replicas: tuple[int, int] = (3, 16),
) -> Case:
    """A row of Megatron-Core 0.8 on H100; in a pipeline a microbatch is one sequence.

    chunks: stages on each submesh. Their number is not published, but transfers between
        stages ran beside computation, which Megatron-Core does only if it is above 1.
    replicas: extents of the axes of data parallelism. The published 48 replicas share the
        optimizer's state, here 16 of them: no dim has 48 parts.
    """
    per_stage = sizes[0] // mesh[STAGE] // chunks if STAGE in mesh else 0
    model = Model(*sizes, 131_072, 4096, is_fused=True, per_stage=per_stage)
    flops = model.model_flops * batch * model.sequence
    whole = {**mesh, DATA: replicas[0], SHARED: replicas[1]}
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
        (batch // math.prod(replicas), chunks), "h100", tuple(tactics),
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


MEGATRON = (
    megatron("megatron/1.7b", (24, 2304, 24), {DATA: 32}, 512, 137),
    megatron("megatron/7.5b", (36, 4096, 32), {DATA: 32, MODEL: 4}, 512, 142),
    megatron(
        "megatron/39.1b", (48, 8192, 64), {STAGE: 2, DATA: 32, MODEL: 8}, 1536, 138,
        (4, 24),
    ),
    megatron(
        "megatron/145.6b", (80, 12288, 96), {STAGE: 8, DATA: 24, MODEL: 8}, 2304, 148,
        (2, 5),
    ),
    megatron(
        "megatron/529.6b", (105, 20480, 128), {STAGE: 35, DATA: 9, MODEL: 8}, 2520, 163,
        (1, 1),
    ),
    core("1.7b", (24, 2048, 16), {}, 192, 408.8),
    core("16b", (32, 6144, 48), {MODEL: 4}, 192, 489.1),
    core("70b", (84, 8192, 64), {STAGE: 2, MODEL: 8}, 384, 419.7, 3),
    core("177b", (96, 12288, 96), {STAGE: 6, MODEL: 8}, 1152, 432.8, 4),
    llama3_405b(),
)  # fmt: skip

PEAK = 989
"""TFLOP/s of the H100, of which an MFU is a share."""

SCALING = tuple(
    core(
        f"177b on {48 * math.prod(replicas)}", (96, 12288, 96), {STAGE: 6, MODEL: 8},
        1152, share * PEAK, 4, replicas,
    )
    for replicas, share in (((1, 2), 0.47), ((6, 16), 0.42))
)  # fmt: skip
"""The 177B model at the same batch on fewer and on more GPUs; published is the MFU."""
