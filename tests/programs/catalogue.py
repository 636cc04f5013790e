"""Train steps of models from public libraries, unchanged."""

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
    """build: returns (function, arguments); inputs: the leaves that carry the batch.

    heavy: takes long to compile; all its checks run with the slow ones.
    """

    name: str
    build: Callable[[], tuple[Callable, tuple]]
    strategies: tuple[str, ...]
    inputs: str = "batch.*"
    heavy: bool = False


BATCH_ONLY = ("dp", "fsdp")
MATMULS = ("dp", "fsdp", "megatron")
TRANSFORMER = ("dp", "fsdp", "megatron", "3d")

PROGRAMS = [
    Program("linen mlp, adamw", linen_models.mlp, MATMULS),
    Program("linen vit, adamw", linen_models.vit, TRANSFORMER, heavy=True),
    Program("linen resnet, sgd", linen_models.resnet, BATCH_ONLY, heavy=True),
    Program("linen lstm, adafactor", linen_models.lstm, BATCH_ONLY, heavy=True),
    Program(
        "linen scan remat, lion", linen_models.transformer, TRANSFORMER, heavy=True
    ),
    Program("nnx cnn, adamw", nnx_models.cnn, BATCH_ONLY),
    Program("nnx scan remat, muon", nnx_models.transformer, TRANSFORMER, heavy=True),
    Program("nnx mixer, amsgrad", nnx_models.mixer, BATCH_ONLY),
    Program("equinox mlp, lion", equinox_models.perceptron, MATMULS),
    Program(
        "equinox transformer, adamw",
        equinox_models.transformer,
        TRANSFORMER,
        heavy=True,
    ),
    Program("equinox gru, rmsprop", equinox_models.gru, BATCH_ONLY),
    Program("equinox batch norm, nadam", equinox_models.convnet, BATCH_ONLY),
    Program(
        "haiku transformer, adafactor",
        haiku_models.transformer,
        TRANSFORMER,
        heavy=True,
    ),
    Program("haiku resnet, lamb", haiku_models.resnet, BATCH_ONLY, heavy=True),
    Program("haiku lstm, adamw", haiku_models.lstm, BATCH_ONLY),
    Program("haiku stack, shampoo", haiku_models.stack, MATMULS, heavy=True),
    Program("moe top-2, adam", plain_models.moe, (*BATCH_ONLY, "experts")),
    Program("decode by scan", plain_models.decode, MATMULS, "prompt"),
    Program("decode by while", plain_models.decode_until_end, MATMULS, "prompt"),
]


def tactics_of(strategy: str, inputs: str) -> list:
    """The tactics of a named strategy for a program with these inputs."""
    batch = mw.data_parallel("data", inputs=inputs)
    return {
        "dp": [batch],
        "fsdp": [batch, mw.fsdp("data")],
        "megatron": [batch, mw.megatron("model")],
        "experts": [batch, mw.expert_parallel("model")],
        "3d": [batch, mw.megatron("model"), mw.fsdp("data")],
    }[strategy]
