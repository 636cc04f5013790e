"""The passes of XLA's GPU compiler in order, and its policy of forming fusions."""

from dataclasses import replace
from functools import partial

from meshwright.predict.compilers.gpu.collective_pipeliner import pipeline_collectives
from meshwright.predict.compilers.gpu.latency_hiding_scheduler import (
    ASYNC_COLLECTIVES,
    hide_latency,
)
from meshwright.predict.compilers.gpu.layout_assignment import assign_gpu_layouts
from meshwright.predict.compilers.gpu.operand_copies import with_operand_copies
from meshwright.predict.compilers.gpu.priority_fusion import decide
from meshwright.predict.compilers.gpu.stack_copies import with_stack_copies
from meshwright.predict.compilers.model.compilation import (
    Compilation,
    Compiler,
    FusionRewrite,
    Pass,
    Rewrite,
    Stage,
)
from meshwright.predict.compilers.model.fusion import FusionKind
from meshwright.predict.compilers.model.policies import BufferPolicy
from meshwright.predict.compilers.xla.collective_combiner import (
    COMBINED,
    COMBINED_BYTES,
    combine_collectives,
)
from meshwright.predict.compilers.xla.instruction_fusion import fuse_instructions
from meshwright.predict.compilers.xla.multi_output_fusion import kernels_of
from meshwright.predict.compilers.xla.output_fusion import fuse_outputs
from meshwright.predict.compilers.xla.producer_fusion import XLA_FUSION
from meshwright.predict.compilers.xla.shared_passes import (
    CALL_INLINER,
)

GPU_FUSION = replace(
    XLA_FUSION,
    decide=decide,
    slice_readers=frozenset({FusionKind.LOOP, FusionKind.REDUCTION}),
)


def merge_into_gpu_kernels(compilation: Compilation) -> Compilation:
    """The compilation with its kernels: fusions merged, none of them with a product.

    Collectives are combined, and copies of slices and operands added, only here, where
    time is counted: memory is counted over the fusions before.
    """
    program, layouts = compilation.program, compilation.layouts
    copied = with_operand_copies(compilation.fusions, program)
    fusions = combine_collectives(with_stack_copies(copied))
    kernels = kernels_of(program, layouts, fusions, joins_products=False)
    return replace(compilation, kernels=kernels)


_EPILOGUE_FLOPS = 2
"""Operations per element of cuDNN's fused epilogue: a bias, and a ReLU or side input.
XLA (`CudnnFusedConvRewriter`) matches no other, so that a batch norm, which also scales
by channel, is a kernel of its own, with the activation behind it."""

GPU_OUTPUT_FUSION = FusionRewrite(partial(fuse_outputs, library_flops=_EPILOGUE_FLOPS))

PASSES = (
    Pass("collective-pipeliner", Stage.OPS, Rewrite(pipeline_collectives)),
    CALL_INLINER,
    Pass("layout-assignment", Stage.LAYOUTS, assign_gpu_layouts),
    Pass("priority-fusion", Stage.FUSION, fuse_instructions),
    Pass("output-fusion", Stage.FUSION, GPU_OUTPUT_FUSION),
    Pass("latency-hiding-scheduler", Stage.FUSION, FusionRewrite(hide_latency)),
    Pass("multi-output-fusion", Stage.FUSION, merge_into_gpu_kernels),
)

GPU = Compiler(
    "gpu", "cuda", ASYNC_COLLECTIVES, PASSES, GPU_FUSION, BufferPolicy(),
    combined=COMBINED, combined_bytes=COMBINED_BYTES,
)  # fmt: skip
