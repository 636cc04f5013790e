"""The pipeline of XLA's GPU compiler."""

from __future__ import annotations

from meshwright.predict.compilers.hlo.buffer_policy import BufferPolicy
from meshwright.predict.compilers.hlo.compilation import Compiler
from meshwright.predict.compilers.xla.pipeline import (
    CALL_INLINER,
    INSTRUCTION_FUSION,
    LAYOUT_ASSIGNMENT,
    MULTI_OUTPUT_FUSION,
    OUTPUT_FUSION,
)
from meshwright.predict.compilers.xla.producer_fusion import XLA_FUSION

PASSES = (
    CALL_INLINER,
    LAYOUT_ASSIGNMENT,
    INSTRUCTION_FUSION,
    OUTPUT_FUSION,
    MULTI_OUTPUT_FUSION,
)

_ASYNC_COLLECTIVES = frozenset(
    {"all_gather", "all_reduce", "all_to_all", "permute", "reduce_scatter"}
)

GPU = Compiler("gpu", "cuda", _ASYNC_COLLECTIVES, PASSES, XLA_FUSION, BufferPolicy())
