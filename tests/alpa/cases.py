"""The rows of Alpa's tests: model, mesh, best known sharding, collectives."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import NamedTuple

import meshwright as mw
from tests.alpa import models

DATA, MODEL, BOTH = {"data": 4}, {"model": 4}, {"data": 2, "model": 2}


class Counts(NamedTuple):
    """All-reduces, reduce-scatters, all-gathers and all-to-alls of one step."""

    ar: int = 0
    rs: int = 0
    ag: int = 0
    a2a: int = 0

    @staticmethod
    def of(counts):
        """From the counts of a plan, which must have no permutes."""
        assert counts["permute"] == 0
        kinds = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all")
        return Counts(*(counts[kind] for kind in kinds))


@dataclass(frozen=True)
class Case:
    """One row.

    build: makes the train step and its arguments. tensors: what the plan counts, one
    collective a tensor. combined: what Alpa's test wants, those that need not wait for
    each other merged; where it states a bound, what we have within it. compiled: what
    XLA reaches, if that is not `combined`. heavy: compiling takes more than seconds.
    """

    build: Callable
    mesh: dict
    tactics: tuple
    tensors: Counts
    combined: Counts
    gather: str = "shared"
    compiled: Counts | None = None
    heavy: bool = False

    def step(self):
        """The partitioned step."""
        return mw.partition(
            built(self.build)[0], self.mesh, self.tactics, gather=self.gather
        )


@cache
def built(build):
    """A model once for all its rows: (train step, arguments)."""
    return build()


def _by_layer(name, even, odd):
    """A dim for layers `name_0`, `name_2`, ... and another for those between."""

    def dim(path, value):
        del value
        number = re.search(rf"{name}_(\d+)", path)
        return even if int(number[1]) % 2 == 0 else odd

    return dim


DP = mw.data_parallel("data")
MEGATRON = mw.megatron("model", vocabulary=False)
MLP = mw.shard({"state.params.*.kernel": _by_layer("Dense", 1, 0)}, "model")
BERT = mw.shard(
    {
        "state.params.**.qvk.kernel": 1,
        "state.params.**.out.kernel": 0,
        "state.params.**.up.kernel": 1,
        "state.params.**.down.kernel": 0,
    },
    "model",
)
VOCABULARY = mw.shard({"state.params.**.words.embedding": 0}, "model")
TIED = mw.shard({"state.params.**.embedding": 0}, "model")
EXPERTS = mw.expert_parallel("data")
CONV = mw.shard({"state.params.*.kernel": _by_layer("Conv", 3, 2)}, "model")
DEPTHWISE = mw.shard(
    {
        "state.params.Conv_0.kernel": 3,
        "state.params.Conv_1.kernel": 3,
        "state.params.Conv_2.kernel": 2,
    },
    "model",
)
ZERO2 = mw.zero(2, "data", min_elements=0)  # Alpa cuts biases too

_wide_batch = partial(models.mlp, 256, 32)
_wide_layers = partial(models.mlp, 32, 256)
_bert_dp = partial(models.bert_layers, 64, 64, 32)
_bert = partial(models.bert_layers, 8, 8, 128)
_bert_remat = partial(models.bert_layers, 8, 8, 128, is_remat=True)
_mlm = partial(models.bert_mlm, 16, 16, 128, 512)
_moe_adam = partial(models.moe_lm, is_factored=False)
_conv_dp = partial(models.conv, 16, 16, 4, 3)
_conv = partial(models.conv, 8, 16, 256, 4)
_depthwise = partial(models.depthwise, 4, 8, 256)

CASES = {
    "MLP, data": Case(_wide_batch, DATA, (DP,), Counts(12), Counts(1)),
    "MLP, model": Case(_wide_layers, MODEL, (MLP,), Counts(5), Counts(5)),
    "MLP, megatron": Case(_wide_layers, MODEL, (MEGATRON,), Counts(5), Counts(5)),
    "MLP, 2-D": Case(_wide_batch, BOTH, (DP, MLP), Counts(17), Counts(6)),
    "MLP, 2-D, scattered": Case(
        _wide_batch, BOTH, (DP, MLP, ZERO2), Counts(5, 12, 12), Counts(5, 1, 1)
    ),
    "MLP, ZeRO-2": Case(
        _wide_batch, DATA, (DP, ZERO2), Counts(0, 12, 12), Counts(0, 1, 1)
    ),
    "MLP, ZeRO-3": Case(
        _wide_batch,
        DATA,
        (mw.fsdp("data", min_elements=0),),
        Counts(0, 12, 12),
        Counts(0, 1, 2),
    ),
    "MLP, ZeRO-3, gathered at use": Case(
        _wide_batch,
        DATA,
        (mw.fsdp("data", min_elements=0),),
        Counts(0, 12, 17),
        Counts(0, 1, 2),
        gather="at_use",
    ),
    "BERT, data": Case(_bert_dp, DATA, (DP,), Counts(24), Counts(1), heavy=True),
    "BERT, model": Case(_bert, MODEL, (BERT,), Counts(7), Counts(7), heavy=True),
    "BERT, megatron": Case(_bert, MODEL, (MEGATRON,), Counts(7), Counts(7), heavy=True),
    "BERT, remat": Case(
        _bert_remat, MODEL, (BERT,), Counts(11), Counts(11), heavy=True
    ),
    "BERT, 2-D": Case(_bert, BOTH, (DP, BERT), Counts(31), Counts(8), heavy=True),
    "BERT, 2-D, scattered": Case(
        _bert, BOTH, (DP, BERT, ZERO2), Counts(7, 24, 24), Counts(7, 1, 1), heavy=True
    ),
    "tied embedding": Case(
        models.tied_embedding, BOTH, (DP, TIED), Counts(6), Counts(5)
    ),
    "BERT MLM, model": Case(
        _mlm, MODEL, (BERT, VOCABULARY), Counts(13), Counts(12), heavy=True
    ),
    "MoE layer": Case(
        models.moe_layer, DATA, (DP, EXPERTS), Counts(9, a2a=4), Counts(1, a2a=4)
    ),
    "MoE LM": Case(
        models.moe_lm,
        DATA,
        (DP, EXPERTS),
        Counts(33, a2a=4),
        Counts(2, a2a=4),
        compiled=Counts(4, a2a=4),
        heavy=True,
    ),
    "MoE LM, scattered": Case(
        models.moe_lm,
        DATA,
        (DP, EXPERTS, ZERO2),
        Counts(49, 26, 26, 4),
        Counts(3, 1, 1, 4),
        heavy=True,
    ),
    "MoE LM, Adam": Case(
        _moe_adam, DATA, (DP, EXPERTS), Counts(27, a2a=4), Counts(2, a2a=4), heavy=True
    ),
    "MoE LM, Adam, scattered": Case(
        _moe_adam,
        DATA,
        (DP, EXPERTS, ZERO2),
        Counts(1, 26, 26, 4),
        Counts(1, 1, 1, 4),
        heavy=True,
    ),
    "conv, data": Case(_conv_dp, DATA, (DP,), Counts(18), Counts(7)),
    "conv, model": Case(_conv, MODEL, (CONV,), Counts(3), Counts(3), heavy=True),
    "depthwise, model": Case(
        _depthwise, MODEL, (DEPTHWISE,), Counts(1), Counts(1), heavy=True
    ),
}
