"""Programs nobody here wrote: train steps of public libraries' models, unchanged."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import meshwright as mw
from tests.programs import (
    equinox_models,
    haiku_models,
    linen_models,
    nnx_models,
    plain_models,
)

MESH = mw.Mesh({"data": 4, "model": 2})


class Program(NamedTuple):
    """build: returns (function, arguments); inputs: the leaves that carry the batch."""

    name: str
    build: Callable[[], tuple[Callable, tuple]]
    inputs: str = "batch.*"
    strategies: tuple[str, ...] = ("dp", "fsdp")


ALL = ("dp", "fsdp", "megatron")

PROGRAMS = [
    Program("linen mlp, adamw", linen_models.mlp, strategies=ALL),
    Program("linen vit, adamw", linen_models.vit, strategies=ALL),
    Program("linen resnet, sgd", linen_models.resnet),
    Program("linen lstm, adafactor", linen_models.lstm),
    Program("linen scan remat, lion", linen_models.transformer, strategies=ALL),
    Program("nnx cnn, adamw", nnx_models.cnn),
    Program("nnx scan remat, muon", nnx_models.transformer, strategies=ALL),
    Program("nnx mixer, amsgrad", nnx_models.mixer),
    Program("equinox mlp, lion", equinox_models.perceptron, strategies=ALL),
    Program("equinox transformer, adamw", equinox_models.transformer, strategies=ALL),
    Program("equinox gru, rmsprop", equinox_models.gru),
    Program("equinox batch norm, nadam", equinox_models.convnet),
    Program("haiku transformer, adafactor", haiku_models.transformer, strategies=ALL),
    Program("haiku resnet, lamb", haiku_models.resnet),
    Program("haiku lstm, adamw", haiku_models.lstm),
    Program("haiku stack, shampoo", haiku_models.stack, strategies=ALL),
    Program("moe top-2, adam", plain_models.moe, strategies=("dp", "fsdp", "experts")),
    Program("decode by scan", plain_models.decode, "prompt", ALL),
    Program("decode by while", plain_models.decode_until_end, "prompt", ALL),
]


def tactics_of(strategy: str, inputs: str) -> list:
    """The tactics of a named strategy for a program with these inputs."""
    batch = mw.data_parallel("data", inputs=inputs)
    return {
        "dp": [batch],
        "fsdp": [batch, mw.fsdp("data")],
        "megatron": [batch, mw.megatron("model")],
        "experts": [batch, mw.expert_parallel("model")],
    }[strategy]
