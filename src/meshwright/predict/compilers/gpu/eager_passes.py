"""A framework that runs a program op by op on a GPU, as PyTorch and TensorFlow do.

Each module of a net, such as a convolution, a batch norm or an activation, is a call of a
library, which reads its operands from memory and writes its result there. Modules are known
by the scopes of ops (`Source.scope`) and the user's source line. Within one module XLA's
fusion stands for the library's kernel; across modules nothing is fused.
"""

from collections.abc import Hashable, Sequence
from dataclasses import replace

from meshwright.predict.compilers.gpu.gpu_passes import GPU_FUSION
from meshwright.predict.compilers.gpu.priority_fusion import decide
from meshwright.predict.compilers.model.compilation import (
    Compilation,
    Compiler,
    Pass,
    Stage,
)
from meshwright.predict.compilers.model.policies import (
    FUSED,
    STORED,
    BufferPolicy,
    Decision,
    FusedOp,
)
from meshwright.predict.compilers.xla.instruction_fusion import fuse_instructions
from meshwright.predict.compilers.xla.multi_output_fusion import kernels_of
from meshwright.predict.compilers.xla.shared_passes import (
    CALL_INLINER,
    LAYOUT_ASSIGNMENT,
)
from meshwright.program.ir import Op


def decide_in_module(producer: FusedOp) -> Sequence[Decision]:
    """For each result of an op, whether it is stored; it is if another module reads it."""
    module, consumers = _module(producer.op), producer.flow.consumers
    return [
        STORED
        if decision is FUSED and any(_module(c) != module for c in consumers[value])
        else decision
        for value, decision in zip(producer.op.results, decide(producer), strict=True)
    ]


def _module(op: Op) -> Hashable:
    return getattr(op.source, "scope", ()), str(op.source)


def keep_kernels_apart(compilation: Compilation) -> Compilation:
    """The compilation with a kernel for each fusion."""
    program, layouts = compilation.program, compilation.layouts
    fusions = compilation.fusions
    kernels = kernels_of(program, layouts, fusions, is_merged=False)
    return replace(compilation, kernels=kernels)


_PASSES = (
    CALL_INLINER,
    LAYOUT_ASSIGNMENT,
    Pass("module-fusion", Stage.FUSION, fuse_instructions),
    Pass("kernels", Stage.FUSION, keep_kernels_apart),
)

EAGER = Compiler(
    "eager", "", frozenset(), _PASSES, replace(GPU_FUSION, decide=decide_in_module),
    BufferPolicy(),
)  # fmt: skip
