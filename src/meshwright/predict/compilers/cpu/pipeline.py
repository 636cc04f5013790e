"""The pipeline of XLA's CPU compiler."""

from __future__ import annotations

from meshwright.predict.compilers.cpu.breadth_first_scheduler import (
    schedule_breadth_first,
)
from meshwright.predict.compilers.cpu.buffers import CPU_BUFFERS
from meshwright.predict.compilers.cpu.instruction_fusion import CPU_FUSION
from meshwright.predict.compilers.cpu.library_rewriter import rewrite_for_libraries
from meshwright.predict.compilers.hlo.compilation import Compiler, Pass, Stage
from meshwright.predict.compilers.xla.call_inliner import CallInliner
from meshwright.predict.compilers.xla.pipeline import (
    INSTRUCTION_FUSION,
    LAYOUT_ASSIGNMENT,
    MULTI_OUTPUT_FUSION,
)

PASSES = (
    # Rematerialized calls stay calls: the CPU compiler does not inline them.
    Pass("call-inliner", Stage.OPS, CallInliner(frozenset({"remat"}))),
    Pass("library-rewriter", Stage.OPS, rewrite_for_libraries),
    LAYOUT_ASSIGNMENT,
    INSTRUCTION_FUSION,
    Pass("breadth-first-scheduler", Stage.FUSION, schedule_breadth_first),
    MULTI_OUTPUT_FUSION,
)

CPU = Compiler("cpu", "cpu", frozenset(), PASSES, CPU_FUSION, CPU_BUFFERS)
