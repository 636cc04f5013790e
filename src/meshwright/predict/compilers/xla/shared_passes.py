"""Passes that all targets of XLA share, and the compiler of targets without their own.

A new pass is a `Pass` (`predict/compilers/model/compilation.py`) in a tuple of passes: here
if all targets have it, otherwise in `tpu_passes.py`, `gpu_passes.py` or `cpu_passes.py`.
"""

from dataclasses import replace
from functools import partial

from meshwright.predict.compilers.model.compilation import (
    Compilation,
    Compiler,
    FusionRewrite,
    Pass,
    Stage,
)
from meshwright.predict.compilers.model.policies import BufferPolicy
from meshwright.predict.compilers.model.tiled_layouts import shape_layouts
from meshwright.predict.compilers.xla.call_inliner import inline_calls
from meshwright.predict.compilers.xla.instruction_fusion import fuse_instructions
from meshwright.predict.compilers.xla.multi_output_fusion import merge_into_kernels
from meshwright.predict.compilers.xla.output_fusion import fuse_outputs
from meshwright.predict.compilers.xla.producer_fusion import XLA_FUSION


def assign_layouts(compilation: Compilation) -> Compilation:
    """The compilation with the layouts (minor dims) that convolutions and products need."""
    shapes = shape_layouts(compilation.program)
    return replace(compilation, layouts=compilation.layouts.changed(shapes=shapes))


CALL_INLINER = Pass("call-inliner", Stage.OPS, inline_calls)
LAYOUT_ASSIGNMENT = Pass("layout-assignment", Stage.LAYOUTS, assign_layouts)
INSTRUCTION_FUSION = Pass("instruction-fusion", Stage.FUSION, fuse_instructions)
OUTPUT_FUSION_WITH_UPDATES = Pass(
    "output-fusion",
    Stage.FUSION,
    FusionRewrite(partial(fuse_outputs, fuses_updates=True)),
)
OUTPUT_FUSION = Pass("output-fusion", Stage.FUSION, FusionRewrite(fuse_outputs))
MULTI_OUTPUT_FUSION = Pass("multi-output-fusion", Stage.FUSION, merge_into_kernels)

XLA_PASSES = (
    CALL_INLINER,
    LAYOUT_ASSIGNMENT,
    INSTRUCTION_FUSION,
    OUTPUT_FUSION,
    MULTI_OUTPUT_FUSION,
)

PLAIN = Compiler("plain", "", frozenset(), XLA_PASSES, XLA_FUSION, BufferPolicy())
"""The compiler of machines whose real one is not modelled: it only fuses, as XLA does."""
