"""The steps on which Meshwright is compared with the TPU compiler.

A case is a program of the zoo at a published width, with a batch that fits eight or sixteen
chips and often few layers, a schedule, and a chip. The chips rotate over the schedules, so
that each program meets all chips.
"""

from __future__ import annotations

import importlib
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax

import meshwright as mw
from benchmarks import strangers
from zoo import classifier, decoder, gns, gpt, gpt3, mixer, resnet, unet, vit

CHIPS = ("tpu-v4", "tpu-v5e", "tpu-v5p", "tpu-v6e")

Built = tuple[Callable[..., Any], tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Program:
    """A step that is partitioned in several ways.

    build: makes the function and its arguments; argument 0 of a train step is donated.
    module: has the schedules. data: name of the mesh axis of the batch; the other is
        "model".
    held_out: whether no rule of the simulator was found on it.
    """

    name: str
    build: Callable[[], Built]
    schedules: tuple[str, ...]
    module: str
    devices: int = 8
    is_training: bool = True
    data: str = "data"
    held_out: bool = False


@dataclass(frozen=True, slots=True)
class Case:
    """A program with a schedule on a machine."""

    program: Program
    schedule: str
    chip: str

    @property
    def name(self) -> str:
        """The key of the case in the results."""
        return f"{self.program.name}/{self.schedule}/{self.chip}-{self.program.devices}"

    @property
    def mesh(self) -> dict[str, int]:
        """One axis if the schedule cuts the batch alone, else also two on "model"."""
        data, devices = self.program.data, self.program.devices
        if "m" in self.schedule or "channels" in self.schedule or self.schedule in _TWO:
            return {data: devices // 2, "model": 2}
        return {data: devices, "model": 1}

    def plan(self) -> mw.Plan:
        """The plan of the case."""
        fn, args = self.program.build()
        schedules = importlib.import_module(self.program.module).schedules
        given_up = 0 if self.program.is_training else None
        step = mw.partition(
            fn, self.mesh, schedules[self.schedule], donate_argnums=given_up
        )
        return step.plan(*args)


_TWO = (
    "emb",
    "dp+units",
    "dp+vocab",
    "dp+units+vocab",
    "dp+units+vocab+z3",
    "dp+space",
    "dp+gates",
    "dp+gates+z3",
    "dp+ep",
    "dp2+ep",
    "dp2+ep+z3",
)


def _train(
    module: str, size: str, schedules: str, devices: int = 8, **changes: Any
) -> Program:
    targets = importlib.import_module(f"zoo.{module}").targets
    depth = f"-{changes['layers']}l" if "layers" in changes else ""
    return Program(
        f"{module}.{size}{depth}",
        partial(targets[size], **changes),
        tuple(schedules.split()),
        f"zoo.{module}",
        devices,
    )


def _gpt(layers: int, schedules: str, **changes: Any) -> Program:
    config = replace(gpt.T32, layers=layers, **changes)

    def build() -> Built:
        return gpt.train_step, gpt.shapes(config)

    name = f"gpt.t32-{layers}l"
    return Program(name, build, tuple(schedules.split()), "zoo.gpt", data="batch")


def _gpt3(layers: int, schedules: str) -> Program:
    config = replace(gpt3.T24, layers=layers)

    def build() -> Built:
        state = jax.eval_shape(partial(gpt3.init, config), jax.random.key(0))
        tokens = jax.ShapeDtypeStruct((config.batch, config.sequence), "int32")
        return gpt3.train_step, (state, {"inputs": tokens, "targets": tokens})

    name = f"gpt3.t24-{layers}l"
    return Program(name, build, tuple(schedules.split()), "zoo.gpt3", data="batch")


def _forward(module: str, size: str, schedules: str, **changes: Any) -> Program:
    """The forward pass of a train step's program, with its loss."""
    found = importlib.import_module(f"zoo.{module}")
    loss: Mapping[str, Callable[[Any], Callable[..., Any]]] = {
        "llm": lambda config: partial(decoder.loss, decoder.Decoder(config)),
        "vit": lambda config: partial(classifier.loss, vit.classifier(config)),
        "mixer": lambda config: partial(classifier.loss, mixer.classifier(config)),
        "unet": lambda config: partial(unet.loss, config),
        "gns": lambda config: partial(gns.loss, config),
    }

    def build() -> Built:
        _, (state, batch) = found.targets[size](**changes)
        forward = loss[module](replace(found.SIZES[size], **changes))

        def step(params: Any, batch: Any) -> Any:
            return forward(params, batch)

        return step, (state.params, batch)

    return Program(
        f"{module}.{size}-forward", build, tuple(schedules.split()), f"zoo.{module}",
        is_training=False,
    )  # fmt: skip


def _resnet_scores(size: str, schedules: str, **changes: Any) -> Program:
    config = replace(resnet.SIZES[size], **changes)

    def build() -> Built:
        _, (state, batch) = resnet.targets[size](**changes)

        def step(params: Any, stats: Any, batch: Any) -> jax.Array:
            return resnet.scores(config, params, stats, batch["image"])

        return step, (state.params, state.stats, batch)

    name = f"resnet.{size}-forward"
    return Program(
        name, build, tuple(schedules.split()), "zoo.resnet", is_training=False
    )


def _serve(size: str, schedules: str, layers: int, **changes: Any) -> Program:

    model = replace(gpt.T32, layers=layers)
    program = _train("serving", size, schedules, model=model, **changes)
    return replace(program, name=f"serving.{size}-{layers}l", is_training=False)


def programs() -> tuple[Program, ...]:
    """All programs, training first."""
    return (
        _gpt(2, "bp mp bp+mp bp+mp+z2 bp+mp+z3 bp+mp+z3+emb", batch=16),
        _gpt(4, "bp+mp bp+mp+z3", batch=32, sequence=1024),
        _gpt3(3, "bp bp+mp bp+mp+z3"),
        _train("llm", "gpt_125m", "dp fsdp dp+megatron", batch=64),
        _train("llm", "gpt_350m", "dp fsdp dp+megatron+z3", batch=32),
        _train("llm", "gpt_1_3b", "fsdp dp+megatron+z3", 16, batch=32),
        _train("llm", "llama2_7b", "fsdp dp+megatron+z3", 16, batch=16, layers=8),
        _train("llm", "llama3_8b", "dp+megatron+z3 fsdp", 16, batch=16, layers=4),
        _train("vit", "b_16", "dp fsdp dp+mp dp+mp+z3", batch=512),
        _train("vit", "l_16", "fsdp dp+mp+z3", batch=256),
        _train("mixer", "b_16", "dp fsdp dp+mp+z3", batch=512),
        _train("resnet", "resnet_50", "dp fsdp dp+mp", batch=1024),
        _train("resnet", "wrn_500m", "dp fsdp dp+mp+z3", batch=128),
        _train("efficientnet", "b0", "dp fsdp dp2+z2", batch=1024),
        _train("efficientnet", "b3", "dp dp+mp", batch=256),
        _train("unet", "ho_cifar10", "dp fsdp dp+mp+z3", batch=256),
        _train("gns", "edges_8192", "dp es es+mp es+z3"),
        _train("primer", "primer_small", "dp fsdp dp+megatron+z3", batch=128),
        _train("primer", "primer_medium", "fsdp dp+megatron", batch=64),
        _train("unet3d", "mlperf", "dp fsdp dp+channels", batch=16),
        _train("lstm", "lstm_2048_512", "dp fsdp dp+units+vocab"),
        _train("sngan", "imagenet", "dp fsdp dp+mp", batch=128),
        _forward("llm", "gpt_350m", "dp dp+megatron", batch=64),
        _forward("llm", "llama2_7b", "dp+megatron fsdp", batch=16, layers=8),
        _forward("vit", "l_16", "dp dp+mp", batch=512),
        _forward("mixer", "l_16", "dp dp+mp", batch=512),
        _forward("unet", "ho_256", "dp fsdp", batch=16),
        _forward("gns", "edges_16384", "dp es"),
        _resnet_scores("resnet_152", "dp", batch=1024),
        _serve("it32", "bp+mp mp bp", layers=4, new=8),
        _serve("it32_multi_query", "bp+mq+mp bp", layers=4, new=8),
    )  # fmt: skip


def held_out() -> tuple[Program, ...]:
    """Programs that were added when the first rules were finished."""
    found = (
        _train("moe", "moe_690m", "fsdp dp+ep dp2+ep dp2+ep+z3", batch=64),
        _train("moe", "moe_1_3b", "dp dp2+ep+z3", 16, batch=64),
        _train("t5", "base", "dp fsdp dp+mp+z3", batch=64),
        _train("t5", "v1_1_large", "fsdp dp+mp dp+mp+z3", 16, batch=64),
        _train("wavenet", "teacher", "dp fsdp dp+gates"),
        _train("parallel_wavenet", "student", "dp fsdp dp+gates+z3"),
        _train("ranking", "web30k", "dp fsdp dp+mp", batch=8192),
        _train("d4pg", "humanoid", "dp dp+mp", batch=65536),
        _train("llm", "gpt_760m", "fsdp dp+megatron+z3", 16, batch=32),
        _train("vit", "s_16", "dp fsdp dp+mp", batch=512),
        _train("vit", "h_14", "fsdp dp+mp+z3", 16, batch=128, layers=16),
        _train("mixer", "s_32", "dp dp+mp", batch=1024),
        _train("resnet", "resnet_101", "dp fsdp", batch=512),
        _train("efficientnet", "b2", "dp fsdp", batch=512),
        _train("gns", "edges_16384", "dp es es+z3"),
        _train("primer", "primer_large", "fsdp dp+megatron+z3", batch=32),
    )
    return tuple(replace(program, held_out=True) for program in found)


def cases() -> Iterator[Case]:
    """Each schedule of each program on two chips, which rotate."""
    turn = 0
    for program in (*programs(), *held_out()):
        for schedule in program.schedules:
            for step in (0, 2 if turn % 2 else 1):
                yield Case(program, schedule, CHIPS[(turn + step) % len(CHIPS)])
            turn += 1


_UNSEEN = 64


def unseen_cases() -> list[Case]:
    """Steps on chips that `cases` leaves out, drawn once; no rule was found on them."""
    seen = {case.name for case in cases()}
    every = (
        Case(program, schedule, chip)
        for program in (*programs(), *held_out())
        for schedule in program.schedules
        for chip in CHIPS
    )
    rest = [case for case in every if case.name not in seen]
    return random.Random(0).sample(rest, _UNSEEN)


def strange_cases() -> Iterator[Case]:
    """Steps that are not in the zoo, each schedule on two chips, which rotate."""
    every = [
        *strangers.first.items(),
        *strangers.second.items(),
        *strangers.third.items(),
        *strangers.fourth.items(),
    ]
    for turn, (name, build) in enumerate(every):
        program = Program(name, build, tuple(strangers.schedules), strangers.__name__)
        for number, schedule in enumerate(program.schedules):
            for step in (0, 1):
                chip = CHIPS[(turn + 2 * number + step) % len(CHIPS)]
                yield Case(program, schedule, chip)


FULL = {
    "gpt.t32-2l": "tpu-v5p",
    "gpt3.t24-3l": "tpu-v6e",
    "vit.b_16": "tpu-v6e",
    "mixer.b_16": "tpu-v6e",
    "primer.primer_small": "tpu-v5e",
    "resnet.resnet_50": "tpu-v5e",
    "resnet.wrn_500m": "tpu-v5p",
    "llm.llama2_7b-8l": "tpu-v5p",
    "gns.edges_8192": "tpu-v4",
    "llm.gpt_350m-forward": "tpu-v4",
    "vit.l_16-forward": "tpu-v5e",
    "serving.it32-4l": "tpu-v5p",
}
"""Programs compiled to the end, each on one chip, so that schedules can be compared."""


def full_cases() -> Iterator[Case]:
    """Every schedule of the programs in `FULL`."""
    for program in programs():
        if program.name in FULL:
            for schedule in program.schedules:
                yield Case(program, schedule, FULL[program.name])
